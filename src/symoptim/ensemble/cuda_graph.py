"""Functions recorded as CUDA graphs, and streams whose work is awaited later; elsewhere calls run at once.

Some calls come before a recording, for libraries to set themselves up and for optimizers to make their
state. These are ordinary calls that count: no step is taken in vain, and none has to be undone.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from symoptim.kernels.triton.graph import record

CALLS_BEFORE_RECORDING = 3  # as in torch's own notes on CUDA graphs: cuBLAS, autograd and allocator settle
CALLS_PER_GRAPH = 25  # recorded as one graph where that many are asked for: the host then has time left


class GraphedFunction:
    """A function without arguments or results, for tensors that keep their addresses.

    >>> total = torch.zeros(())
    >>> add = GraphedFunction(lambda: total.add_(1), torch.device("cpu"))
    >>> for _ in range(5):
    ...     add()
    >>> add(3)
    >>> total
    tensor(8.)
    """

    def __init__(self, function: Callable[[], object], device: torch.device) -> None:
        """Store the function; nothing is called yet."""
        self.function = function
        self.device = device
        self.calls = 0
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """Recorded graphs, by the number of calls each replays."""

    def __call__(self, times: int = 1) -> None:
        """Call the function that many times, or replay it."""
        while times:
            count = 1
            if self.device.type != "cuda":
                self.function()
            elif self.calls < CALLS_BEFORE_RECORDING:
                stream = self._recordable_stream()
                with torch.cuda.stream(stream):
                    self.function()
                torch.cuda.current_stream(self.device).wait_stream(stream)
            else:
                count = CALLS_PER_GRAPH if times >= CALLS_PER_GRAPH else 1
                if count not in self.graphs:
                    self.graphs[count] = self._record(count)  # which runs nothing
                self.graphs[count].replay()
            self.calls += count
            times -= count

    def _recordable_stream(self) -> torch.cuda.Stream:
        """The current stream, or another one behind it: the default stream cannot be recorded."""
        current = torch.cuda.current_stream(self.device)
        if current != torch.cuda.default_stream(self.device):
            return current
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(current)
        return stream

    def _record(self, times: int) -> torch.cuda.CUDAGraph:
        """Record that many calls."""
        free, _ = torch.cuda.mem_get_info(self.device)
        if free < torch.cuda.memory_reserved(self.device):
            torch.cuda.empty_cache()  # a recording cannot use memory that was cached for earlier calls
        stream = self._recordable_stream()
        return record(lambda: [self.function() for _ in range(times)], self.device, stream)


class SideStream:
    """On CUDA, a stream of its own, whose work may overlap with that of others; elsewhere nothing.

    >>> with SideStream(torch.device("cpu")).entered():
    ...     total = torch.ones(3).sum()
    """

    def __init__(self, device: torch.device) -> None:
        """Make the stream."""
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def entered(self) -> AbstractContextManager[object]:
        """Enqueue work on this stream; reading a result on the host waits for it."""
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        return torch.cuda.stream(self.stream)

    def is_done(self) -> bool:
        """Whether all work of this stream has been done."""
        return self.stream is None or self.stream.query()
