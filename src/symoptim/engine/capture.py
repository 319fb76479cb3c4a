"""A step that is recorded once and replayed: on CUDA as a graph, elsewhere it is simply called.

Recording needs some calls before it, for libraries to set themselves up and for optimizers to make their
state. These are ordinary calls that count: a step is never taken for nothing, and nothing has to be undone.
"""

from collections.abc import Callable

import torch

CALLS_BEFORE_RECORDING = 3  # as in torch's own notes on CUDA graphs: cuBLAS, autograd and allocator settle


class Replayed:
    """A function without arguments or results, for tensors that stay where they are.

    >>> total = torch.zeros(())
    >>> add = Replayed(lambda: total.add_(1), torch.device("cpu"))
    >>> for _ in range(5):
    ...     add()
    >>> total
    tensor(5.)
    """

    def __init__(self, function: Callable[[], object], device: torch.device) -> None:
        """Remember the function; nothing is called yet."""
        self.function = function
        self.device = device
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Call the function, or replay it."""
        if self.device.type != "cuda":
            self.function()
        elif self.graph is not None:
            self.graph.replay()
        elif self.calls < CALLS_BEFORE_RECORDING:
            self._call_aside()
        else:
            self.graph = self._record()
            self.graph.replay()  # recording only notes the work down
        self.calls += 1

    def _call_aside(self) -> None:
        """Call on a stream of its own, as a recording will."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self.function()
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # A graph is recorded on the current device unless it is told otherwise.
        with torch.cuda.device(self.device), torch.cuda.graph(graph, stream=torch.cuda.Stream(self.device)):
            self.function()
        return graph
