"""The least a step can take: bytes that have to be moved, over the bandwidth of a copy on the same machine.

    read w, read g, write w                   SGD, SM, UN without momentum
    + read and write the buffer               with momentum, in the precision of updates
    + read and write the master copy          of weights of less than 32 bits

Caches are flushed before every step, and what an implementation moves twice is not counted. A CPU reads what
it is going to overwrite, so that a copy of n bytes moves 3 n there; on CUDA it moves 2 n.
"""

import statistics

import torch

from symoptim.bench.clock import Clock
from symoptim.geometry.tensors import update_dtype

COPIED = {"cpu": 2**28, "cuda": 2**30}
"""Bytes of the copy that bandwidth is measured with: 256 MiB, 1 GiB."""
MOVED = {"cpu": 3, "cuda": 2}
"""How often each of them is moved."""


def bytes_moved(elements: int, dtype: torch.dtype, *, momentum: float) -> int:
    """Bytes a step has to move.

    >>> bytes_moved(1000, torch.float32, momentum=0.0), bytes_moved(1000, torch.float32, momentum=0.9)
    (12000, 20000)
    >>> bytes_moved(1000, torch.bfloat16, momentum=0.9)  # 3 x 2, and 2 x 4 twice
    22000
    """
    wide = update_dtype(dtype)
    master = 2 * wide.itemsize if wide != dtype else 0
    buffer = 2 * wide.itemsize if momentum else 0
    return elements * (3 * dtype.itemsize + master + buffer)


class Copy:
    """A copy, timed in turn with the optimizers."""

    def __init__(self, device: torch.device) -> None:
        """Make both ends of it."""
        self.source = torch.ones(COPIED[device.type] // 4, device=device)
        self.target = torch.zeros_like(self.source)  # touched: fresh memory costs more than the copy
        self.seconds: list[float] = []

    def measure(self, clock: Clock) -> None:
        """Copy a few times more."""
        self.seconds += [clock.read(lambda: self.target.copy_(self.source)).seconds for _ in range(3)]

    def bandwidth(self) -> float:
        """Bytes moved in a second, at the median."""
        moved = MOVED[self.source.device.type] * self.source.nbytes
        return moved / statistics.median(self.seconds)
