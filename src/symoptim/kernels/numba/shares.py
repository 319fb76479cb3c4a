"""Work that is shared out among as many threads as torch uses."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ALONE = 1 << 17  # entries up to which one thread is faster than waking others

Stretch = tuple[int, int, int, int]
"""Number of a tensor, first and last of what is to be done of it, entries that this means."""


def cut(number: int, total: int, width: int, *, each: int) -> Iterator[Stretch]:
    """Stretches of a tensor.

    Args:
        number: of the tensor.
        total: how many things there are to be done.
        width: how many at once, at least one.
        each: entries of a thing.

    Yields:
        Stretches.

    >>> list(cut(7, 5, 2, each=10))
    [(7, 0, 2, 20), (7, 2, 4, 20), (7, 4, 5, 10)]
    """
    width = max(1, width)
    for first in range(0, total, width):
        last = min(first + width, total)
        yield number, first, last, (last - first) * each


class Shares:
    """Stretches of work in a fixed order."""

    def __init__(self, stretches: Iterable[Iterable[Stretch]]) -> None:
        """Take the stretches, tensor by tensor."""
        found = np.array(list(chain.from_iterable(stretches)), np.int64).reshape(-1, 4)
        self.stretches: NDArray[np.int64] = np.ascontiguousarray(found[:, :3])
        self.ends: NDArray[np.int64] = np.cumsum(found[:, 3])

    def call(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Call ``work(stretches, *arguments)`` with a part of the stretches in every thread."""
        threads = torch.get_num_threads()
        if threads == 1 or not len(self.ends) or self.ends[-1] <= ALONE:
            work(self.stretches, *arguments)
            return
        targets = np.arange(1, threads) * int(self.ends[-1]) // threads
        cuts: NDArray[np.int64] = np.searchsorted(self.ends, targets) + 1
        first, *others = np.split(self.stretches, cuts)
        waiting = [_workers(threads - 1).submit(work, part, *arguments) for part in others]
        work(first, *arguments)
        for one in waiting:
            one.result()


@functools.cache
def _workers(count: int) -> ThreadPoolExecutor:
    # Threads that sleep while there is nothing to do: ones that spin would take the cores from torch's.
    return ThreadPoolExecutor(count, thread_name_prefix="symoptim")


# A process that is forked has none of the threads, only the memory of them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.cache_clear)
