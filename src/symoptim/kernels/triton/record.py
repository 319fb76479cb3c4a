"""Launches that are noted down once, to be replayed with a single call."""

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import torch


def record(
    work: Callable[[], object], device: torch.device, stream: torch.cuda.Stream | None = None
) -> torch.cuda.CUDAGraph:
    """Note down what a function launches, without doing it.

    ``torch.cuda.graph`` would first wait for all work on the device and for the garbage collector, a tenth of
    a second. The function must have been called before, so that its kernels are compiled, and all it uses has
    to stay where it is for as long as the graph may be replayed.

    Args:
        work: launches kernels on the current stream; nothing in it may wait for the device.
        device: a CUDA device.
        stream: to record from, not the default one. Memory that libraries keep for a stream then is that of
            this one, which is right where the graph is replayed on it; by default, a new stream.

    Returns:
        A graph whose ``replay`` puts the work on the then current stream.
    """
    graph = torch.cuda.CUDAGraph()
    # A graph is recorded on the current device, and not on its default stream.
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
    """Without garbage collection: what it frees on the device may not be freed meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
