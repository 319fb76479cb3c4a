"""Kernel launches, and the concurrent compilation of their kernels.

Compiled one after the other, the kernels of a training step take several seconds on one processor; most of
it is spent in other programs.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch


class Launch(NamedTuple):
    """A kernel, its grid, and what it is called with."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self) -> None:
        """Enqueue the kernel on the current stream; it is compiled if it has not been."""
        self.kernel[self.grid](*self.arguments, **self.options)


def compile_all(launches: Sequence[Launch], device: torch.device) -> None:
    """Compile the kernels of several launches and load them; nothing is launched.

    Versions of Triton that cannot do that (before 3.4) compile when a kernel is launched.

    Args:
        launches: with the kernels.
        device: what for.
    """
    if device.type != "cuda" or len(launches) < 2:
        return
    import triton  # pyright: ignore[reportMissingImports]

    asynchronous: Any = getattr(triton, "AsyncCompileMode", None)
    if asynchronous is None:
        return
    with torch.cuda.device(device), ThreadPoolExecutor(len(launches)) as pool:
        with asynchronous(pool):
            kernels = [one.kernel.warmup(*one.arguments, grid=one.grid, **one.options) for one in launches]
        list(pool.map(partial(_load, device), kernels))


def _load(device: torch.device, kernel: Any) -> None:
    """Put a kernel onto the device, and compile the function that launches it."""
    with torch.cuda.device(device):
        compiled = kernel.result() if hasattr(kernel, "result") else kernel
        compiled[(1, 1, 1)]
