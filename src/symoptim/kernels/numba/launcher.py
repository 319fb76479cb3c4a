"""Launchers of the CPU kernels: optimizer steps, and squared norms for the full metric."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symoptim.kernels.backend import Hyperparameters
from symoptim.kernels.descriptor import (
    COLUMNS,
    COUNT,
    GRADIENT,
    INNER,
    KIND,
    OF_ROWS,
    OUTER,
    PLAIN,
    RATE,
    table_rows,
)
from symoptim.kernels.memory_layout import FilterLayout
from symoptim.kernels.numba import norms, step
from symoptim.kernels.numba.thread_pool import Chunk, WorkSplit, chunks

CHUNK = 1 << 16  # entries of a chunk at least: enough to be worth a call
CHUNKS_PER_THREAD = 32  # at least, where there is enough and rows are not longer
WIDTH = 2048  # neighboring entries that columns are stepped by: long enough to be fetched ahead


class CpuLauncher:
    """Steps tensors of one precision."""

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Cut the tensors of the table into chunks."""
        self.table: NDArray[np.int64] = table.numpy()
        self.like = torch.empty(0, dtype=dtype, device="cpu").numpy()
        rows = table_rows(table)
        size = _chunk_size(sum(row[OUTER] * row[COUNT] * row[INNER] for row in rows))
        self.work = WorkSplit(_step_chunks(number, row, size) for number, row in enumerate(rows))

    def set_gradient_pointers(self, gradients: Sequence[int]) -> None:
        """Use gradients at these addresses."""
        self.table[:, GRADIENT] = gradients

    def launch(
        self,
        numbers: Hyperparameters,
        rates: Sequence[Tensor | None],
        scaling: tuple[Tensor, Tensor] | None,  # noqa: ARG002 - losses are scaled on accelerators only
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.backend.Launcher`."""
        values = np.array(numbers)
        for group, rate in enumerate(rates):
            if rate is not None:
                values[group, RATE] = float(rate)
        self.work.call(cast("Any", step).step, self.table, values, self.like)


class CpuSquaredNorms:
    """Takes squared norms of rows or columns of matrices of one precision."""

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Cut the matrices of the table into chunks."""
        self.like = torch.empty(0, dtype=dtype, device="cpu").numpy()
        rows, threads = table_rows(table), torch.get_num_threads()
        total = sum(row[COUNT] * row[INNER] for row in rows)
        largest = total if threads == 1 else total // (4 * threads)
        size = _chunk_size(total)
        self.work = WorkSplit(_norm_chunks(number, row, size, largest) for number, row in enumerate(rows))

    def launch(self, table: Tensor, sums: Tensor) -> None:
        """Write all sums, ``(n,)``, float64; addresses in the table may have changed."""
        self.work.call(cast("Any", norms).squares, table.numpy(), self.like, sums.zero_().numpy())


def _chunk_size(total: int) -> int:
    """Entries of a chunk, of so many: the longer, the faster memory is read."""
    return max(CHUNK, total // (CHUNKS_PER_THREAD * torch.get_num_threads()))


def _step_chunks(number: int, row: list[int], size: int) -> Iterator[Chunk]:
    """Chunks of a tensor to be stepped."""
    lay = FilterLayout(*row[OUTER : INNER + 1])
    if not lay.length:
        return iter(())
    if row[KIND] == PLAIN and not row[COLUMNS]:
        return chunks(number, lay.inner, size, entries=1)
    if lay.outer == 1:
        return chunks(number, lay.filters, size // lay.inner, entries=lay.length)
    return chunks(number, lay.filters, WIDTH // lay.inner, entries=lay.length)


def _norm_chunks(number: int, row: list[int], size: int, largest: int) -> Iterator[Chunk]:
    """Chunks of a matrix whose rows or columns are to be summed."""
    if row[KIND] == OF_ROWS:
        return chunks(number, row[COUNT], size // row[INNER], entries=row[INNER])
    # A part of the columns is pieces of memory that lie apart, which take up to twice as long: all are summed
    # at once, unless that would be more than a thread's fair share.
    return chunks(number, row[INNER], max(WIDTH, largest // max(1, row[COUNT])), entries=row[COUNT])
