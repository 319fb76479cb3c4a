# pyright: basic
"""Squared norms of the rows or columns of matrices, their entries multiplied by factors."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from symoptim.kernels.descriptor import COLUMNS, COUNT, INNER, KIND, OF_ROWS, OUT, ROWS, WEIGHTS, table_rows
from symoptim.kernels.numba.jit import SOURCES, array_at, in_order, inlined, kernel, narrow, njit
from symoptim.kernels.numba.thread_pool import WIDTH, Chunk, WorkSplit, chunk_size, chunks

BLOCK = 2048  # entries summed in their own precision; sums of blocks are float64
BLOCK_OF_ROWS = 64  # rows of which columns are summed in their own precision
SMALL, LARGE = 1e-30, 1e30  # sums between which float32 is enough


@in_order
def product(one, other):
    """Of an entry and its factor."""
    return one * other


@inlined
def square_of_block(x, columns):
    """Sum of squares in the precision of the entries."""
    narrow()
    total = x.dtype.type(0)
    if columns.size:
        for i in range(x.size):
            entry = product(x[i], columns[i])
            total += entry * entry
    else:
        for i in range(x.size):
            total += x[i] * x[i]
    return total


@njit
def square_in_float64(x, factors):
    """Of a row or column whose squares are too small or too large for less."""
    total = 0.0
    for i in range(x.size):
        entry = np.float64(x[i]) * (np.float64(factors[i]) if factors.size else 1.0)
        total += entry * entry
    return total


@njit
def squares_of_rows(w, inner, columns, out):
    """Of all rows."""
    for row in range(out.size):
        x, total = w[row * inner : (row + 1) * inner], 0.0
        for start in range(0, inner, BLOCK):
            total += square_of_block(x[start : start + BLOCK], columns[start : start + BLOCK])
        out[row] = total if SMALL < total < LARGE else square_in_float64(x, columns)


@njit
def squares_of_columns(w, rows, inner, first, last, out):
    """Of the columns from ``first`` to ``last``."""
    narrow()
    width, count = last - first, w.size // inner
    part = np.empty(width, w.dtype)
    for block in range(0, count, BLOCK_OF_ROWS):
        part[:] = 0
        for row in range(block, min(block + BLOCK_OF_ROWS, count)):
            x = w[row * inner + first : row * inner + last]
            factor = rows[row] if rows.size else w.dtype.type(1)
            for i in range(width):
                entry = product(x[i], factor)
                part[i] += entry * entry
        for i in range(width):
            out[i] += part[i]
    for i in range(width):
        if not SMALL < out[i] < LARGE:
            out[i] = square_in_float64(w[first + i :: inner], rows)


def _made(sources):
    @kernel
    def squares(chunks, table, like, out):
        """Write the sums of chunks ``(matrix, first, last)`` of rows or columns to ``out``, all zeros."""
        if not sources:
            return
        for k in range(chunks.shape[0]):
            about, first, last = table[chunks[k, 0]], chunks[k, 1], chunks[k, 2]
            count, inner, start = about[COUNT], about[INNER], about[OUT]
            w = array_at(about[WEIGHTS], count * inner, like)
            if about[KIND] == OF_ROWS:
                columns = array_at(about[COLUMNS], inner, like)
                squares_of_rows(
                    w[first * inner : last * inner], inner, columns, out[start + first : start + last]
                )
            else:
                rows = array_at(about[ROWS], count, like)
                squares_of_columns(w, rows, inner, first, last, out[start + first : start + last])

    return squares


squares = _made(SOURCES)


class CpuSquaredNorms:
    """Takes squared norms of rows or columns of matrices of one precision."""

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Cut the matrices of the table into chunks."""
        self.like = torch.empty(0, dtype=dtype, device="cpu").numpy()
        rows, threads = table_rows(table), torch.get_num_threads()
        total = sum(row[COUNT] * row[INNER] for row in rows)
        largest = total if threads == 1 else total // (4 * threads)
        size = chunk_size(total)
        self.work = WorkSplit(_norm_chunks(number, row, size, largest) for number, row in enumerate(rows))

    def launch(self, table: Tensor, sums: Tensor) -> None:
        """Write all sums, ``(n,)``, float64; addresses in the table may have changed."""
        self.work.call(squares, table.numpy(), self.like, sums.zero_().numpy())


def _norm_chunks(number: int, row: list[int], size: int, largest: int) -> Iterator[Chunk]:
    """Chunks of a matrix whose rows or columns are to be summed."""
    if row[KIND] == OF_ROWS:
        return chunks(number, row[COUNT], size // row[INNER], entries=row[INNER])
    # A part of the columns is pieces of memory that lie apart, which take up to twice as long: all are summed
    # at once, unless that would be more than a thread's fair share.
    return chunks(number, row[INNER], max(WIDTH, largest // max(1, row[COUNT])), entries=row[COUNT])
