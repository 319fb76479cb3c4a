"""CUDA graphs: recorded launches, and tensors of the host that are copied to a device for them.

A copy that is captured is made when the graph is replayed, not now. Only that graph may read the result, and
both ends of the copy have to live as long as the graph, whose end is not announced: they are kept for good.
"""

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

_captured: list[object] = []


def keep_alive(owner: object) -> None:
    """Keep an object, whose memory the graph that is being captured will use, for good."""
    if not any(one is owner for one in _captured):
        _captured.append(owner)


def _copy_to(device: torch.device, host: Tensor) -> Tensor:
    """A copy on a device; the host does not wait for it."""
    pinned = host.pin_memory()
    copy = torch.empty(host.shape, dtype=host.dtype, device=device).copy_(pinned, non_blocking=True)
    if torch.cuda.is_current_stream_capturing():
        _captured.extend((pinned, copy))
    return copy


class DeviceConstant:
    """A tensor of the host that never changes, with its copy on a device."""

    def __init__(self, host: Tensor, device: torch.device) -> None:
        """Remember the tensor; nothing is copied yet."""
        self.host, self.device = host, device
        self._copy: Tensor | None = None

    def __len__(self) -> int:
        """Rows of the tensor."""
        return len(self.host)

    def get(self) -> Tensor:
        """The copy, made at the first call; a graph that captures this call gets a copy of its own."""
        if self._copy is not None:
            return self._copy
        copy = _copy_to(self.device, self.host)
        if not torch.cuda.is_current_stream_capturing():
            self._copy = copy
        return copy


class DeviceSlot:
    """Memory at a fixed address on a device, for graphs that are replayed: it has what was put there last."""

    def __init__(self, device: torch.device) -> None:
        """Remember the device; nothing is allocated yet."""
        self.device = device
        self._source: Tensor | None = None
        self._memory: Tensor | None = None
        self._is_current = False

    def put(self, source: Tensor) -> None:
        """Have a tensor in pinned memory copied at the next :meth:`get`; it must not change any more."""
        self._is_current = self._is_current and source is self._source
        self._source = source

    def get(self) -> Tensor:
        """The memory, with what was put last."""
        assert self._source is not None
        if self._memory is None:
            self._memory = torch.empty_like(self._source, device=self.device)
        if not self._is_current:
            self._memory.copy_(self._source, non_blocking=True)
        self._is_current = True
        return self._memory

    def copy(self) -> Tensor:
        """A copy for one graph that is being captured."""
        assert self._source is not None
        return _copy_to(self.device, self._source)


def record(
    work: Callable[[], object], device: torch.device, stream: torch.cuda.Stream | None = None
) -> torch.cuda.CUDAGraph:
    """Capture what a function launches, without doing it.

    ``torch.cuda.graph`` would first wait for all work on the device and for the garbage collector, a tenth of
    a second. The function must have been called before, so that its kernels are compiled, and all it uses has
    to stay where it is for as long as the graph may be replayed.

    Args:
        work: launches kernels on the current stream; nothing in it may wait for the device.
        device: a CUDA device.
        stream: to capture on, not the default one. Memory that libraries keep for a stream then is that of
            this one, which is right where the graph is replayed on it; by default, a new stream.

    Returns:
        A graph whose ``replay`` puts the work on the then current stream.
    """
    graph = torch.cuda.CUDAGraph()
    # A graph is captured on the current device, and not on its default stream.
    with torch.cuda.device(device), torch.cuda.stream(stream or torch.cuda.Stream(device)), _uncollected():
        # Other threads may go on allocating.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # which would hide what went wrong
                graph.capture_end()
            raise
        graph.capture_end()
    return graph


@contextmanager
def _uncollected() -> Generator[None]:
    """No garbage collection: what it frees on the device may not be freed during a capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
