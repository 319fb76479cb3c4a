# pyright: basic
"""Squared norms of the rows or columns of matrices, their entries multiplied by factors."""

import numpy as np

from symoptim.kernels.cpu.compiled import SOURCES, array_at, kernel, njit
from symoptim.kernels.squares import OF_ROWS, OUT
from symoptim.kernels.table import COLUMNS, COUNT, INNER, KIND, ROWS, WEIGHTS

BLOCK = 2048  # entries summed in their own precision; sums of blocks are float64
AT_ONCE = 64  # rows of which columns are summed in their own precision


@njit
def _of_short_row(x, columns):
    part = x.dtype.type(0)
    if columns.size:
        for i in range(x.size):
            part += (x[i] * columns[i]) * (x[i] * columns[i])
    else:
        for i in range(x.size):
            part += x[i] * x[i]
    return part


@njit
def _of_row(x, columns):
    if x.size <= BLOCK:
        return np.float64(_of_short_row(x, columns))
    total = 0.0
    for start in range(0, x.size, BLOCK):
        total += _of_short_row(x[start : start + BLOCK], columns[start : start + BLOCK])
    return total


@njit
def _of_columns(w, rows, inner, first, last, out):
    width = last - first
    part = np.empty(width, w.dtype)
    for block in range(0, w.size // inner, AT_ONCE):
        part[:] = 0
        for row in range(block, min(block + AT_ONCE, w.size // inner)):
            x = w[row * inner + first : row * inner + last]
            factor = rows[row] if rows.size else w.dtype.type(1)
            for i in range(width):
                part[i] += (x[i] * factor) * (x[i] * factor)
        for i in range(width):
            out[i] += part[i]


def _made(sources):
    @kernel
    def squares(stretches, table, like, out):
        """Write the sums of stretches ``(matrix, first, last)`` of rows or columns to ``out``, all zeros."""
        if not sources:
            return
        for k in range(stretches.shape[0]):
            about, first, last = table[stretches[k, 0]], stretches[k, 1], stretches[k, 2]
            count, inner, start = about[COUNT], about[INNER], about[OUT]
            w = array_at(about[WEIGHTS], count * inner, like)
            if about[KIND] == OF_ROWS:
                columns = array_at(about[COLUMNS], inner, like)
                for row in range(first, last):
                    out[start + row] = _of_row(w[row * inner : (row + 1) * inner], columns)
            else:
                rows = array_at(about[ROWS], count, like)
                _of_columns(w, rows, inner, first, last, out[start + first : start + last])

    return squares


squares = _made(SOURCES)
