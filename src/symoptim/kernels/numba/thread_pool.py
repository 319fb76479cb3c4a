"""Work that is split among as many threads as torch uses."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

SINGLE_THREAD = 1 << 17  # entries up to which one thread is faster than waking others
CHUNK = 1 << 16  # entries of a chunk at least: enough to be worth a call
CHUNKS_PER_THREAD = 32  # at least, where there is enough and rows are not longer
WIDTH = 2048  # neighboring entries that columns are stepped by: long enough to be fetched ahead

Chunk = tuple[int, int, int, int]
"""Row of the table, first and last item of that tensor, and how many entries these are."""


def chunk_size(total: int) -> int:
    """Entries of a chunk, of so many: the longer, the faster memory is read."""
    return max(CHUNK, total // (CHUNKS_PER_THREAD * torch.get_num_threads()))


def chunks(tensor: int, items: int, width: int, *, entries: int) -> Iterator[Chunk]:
    """Cut the items of a tensor into chunks.

    Args:
        tensor: its row in the table.
        items: how many there are: filters, or entries.
        width: items of a chunk; less than one counts as one.
        entries: entries of an item.

    Yields:
        Chunks.

    >>> list(chunks(7, 5, 2, entries=10))
    [(7, 0, 2, 20), (7, 2, 4, 20), (7, 4, 5, 10)]
    """
    width = max(1, width)
    for first in range(0, items, width):
        last = min(first + width, items)
        yield tensor, first, last, (last - first) * entries


class WorkSplit:
    """Chunks of work in a fixed order."""

    def __init__(self, chunks_of_tensors: Iterable[Iterable[Chunk]]) -> None:
        """Take the chunks, tensor by tensor."""
        found = np.array(list(chain.from_iterable(chunks_of_tensors)), np.int64).reshape(-1, 4)
        self.chunks: NDArray[np.int64] = np.ascontiguousarray(found[:, :3])
        self.ends: NDArray[np.int64] = np.cumsum(found[:, 3])

    def call(self, kernel: Callable[..., Any], *arguments: Any) -> None:
        """Call ``kernel(chunks, *arguments)`` with a part of the chunks in every thread."""
        threads = torch.get_num_threads()
        if threads == 1 or not len(self.ends) or self.ends[-1] <= SINGLE_THREAD:
            kernel(self.chunks, *arguments)
            return
        targets = np.arange(1, threads) * int(self.ends[-1]) // threads
        cuts: NDArray[np.int64] = np.searchsorted(self.ends, targets) + 1
        first, *others = np.split(self.chunks, cuts)
        futures = [_executor(threads - 1).submit(kernel, part, *arguments) for part in others]
        kernel(first, *arguments)
        for future in futures:
            future.result()


@functools.cache
def _executor(threads: int) -> ThreadPoolExecutor:
    # Threads that sleep while there is nothing to do: ones that spin would take the cores from torch's.
    return ThreadPoolExecutor(threads, thread_name_prefix="symoptim")


# A process that is forked has none of the threads, only the memory of them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)
