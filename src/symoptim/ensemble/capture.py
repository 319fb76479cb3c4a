"""Work that is recorded once and replayed, and work that is waited for later: on CUDA; elsewhere it is done.

Recording needs some calls before it, for libraries to set themselves up and for optimizers to make their
state. These are ordinary calls that count: a step is never taken for nothing, and nothing has to be undone.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from symoptim.kernels.triton.graph import record

CALLS_BEFORE_RECORDING = 3  # as in torch's own notes on CUDA graphs: cuBLAS, autograd and allocator settle
CALLS_AT_ONCE = 25  # recorded as one where that many are asked for: the host then has time for other things


class Replayed:
    """A function without arguments or results, for tensors that stay where they are.

    >>> total = torch.zeros(())
    >>> add = Replayed(lambda: total.add_(1), torch.device("cpu"))
    >>> for _ in range(5):
    ...     add()
    >>> add(3)
    >>> total
    tensor(8.)
    """

    def __init__(self, function: Callable[[], object], device: torch.device) -> None:
        """Remember the function; nothing is called yet."""
        self.function = function
        self.device = device
        self.calls = 0
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """Recorded calls, by their number."""

    def __call__(self, times: int = 1) -> None:
        """Call the function that many times, or replay it."""
        while times:
            at_once = self._at_once(times)
            if self.device.type != "cuda":
                self.function()
            elif self.calls < CALLS_BEFORE_RECORDING:
                self._call_aside()
            else:
                if at_once not in self.graphs:
                    self.graphs[at_once] = self._record(at_once)  # which only notes the work down
                self.graphs[at_once].replay()
            self.calls += at_once
            times -= at_once

    def _at_once(self, times: int) -> int:
        recorded = self.device.type == "cuda" and self.calls >= CALLS_BEFORE_RECORDING
        return CALLS_AT_ONCE if recorded and times >= CALLS_AT_ONCE else 1

    def _call_aside(self) -> None:
        """Call where a recording will be made."""
        stream = self._aside()
        with torch.cuda.stream(stream):
            self.function()
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def _aside(self) -> torch.cuda.Stream:
        """A stream that can be recorded from, with all earlier work behind it: in a lane, the lane's own."""
        current = torch.cuda.current_stream(self.device)
        if current != torch.cuda.default_stream(self.device):
            return current
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(current)
        return stream

    def _record(self, times: int) -> torch.cuda.CUDAGraph:
        """Note down that many calls."""
        free, _ = torch.cuda.mem_get_info(self.device)
        if free < torch.cuda.memory_reserved(self.device):
            torch.cuda.empty_cache()  # a recording cannot use memory that was kept from earlier calls
        return record(lambda: [self.function() for _ in range(times)], self.device, self._aside())


class Lane:
    """An order of work of its own, which may overlap with that of other lanes.

    >>> with Lane(torch.device("cpu")).entered():
    ...     total = torch.ones(3).sum()
    """

    def __init__(self, device: torch.device) -> None:
        """On CUDA, a stream."""
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def entered(self) -> AbstractContextManager[object]:
        """Put work into this lane; results may be read on the host, which waits for them."""
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        return torch.cuda.stream(self.stream)

    def is_done(self) -> bool:
        """Whether all work of this lane has been done."""
        return self.stream is None or self.stream.query()
