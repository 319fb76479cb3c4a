# pyright: basic
"""Squared norms of the rows or columns of matrices, their entries multiplied by factors."""

import numpy as np

from symoptim.kernels.numba.compiled import SOURCES, array_at, in_order, inlined, kernel, narrow, njit
from symoptim.kernels.numba.machine import ZEN
from symoptim.kernels.squares import OF_ROWS, OUT
from symoptim.kernels.table import COLUMNS, COUNT, INNER, KIND, ROWS, WEIGHTS

BLOCK = 2048  # entries summed in their own precision; sums of blocks are float64
FOUR = 4  # rows that are summed together
# Rows summed in turn on AMD's Zen, and entries that make a turn: 34 GB/s on an EPYC instead of 26 with
# four rows together. Parts are compiled where they are called, for a call takes as long as 128 entries.
SIX, PIECE = 6, 128
AT_ONCE = 64  # rows of which columns are summed in their own precision
SMALL, LARGE = 1e-30, 1e30  # sums between which float32 is enough


@in_order
def _product(one, other):
    return one * other


@inlined
def _of_weighted(x, columns):
    narrow()
    part = x.dtype.type(0)
    for i in range(x.size):
        entry = _product(x[i], columns[i])
        part += entry * entry
    return part


@inlined
def _of_plain(x):
    narrow()
    part = x.dtype.type(0)
    for i in range(x.size):
        part += x[i] * x[i]
    return part


@njit
def _of_row(x, columns):
    total = 0.0
    for start in range(0, x.size, BLOCK):
        piece = x[start : start + BLOCK]
        total += _of_weighted(piece, columns[start : start + BLOCK]) if columns.size else _of_plain(piece)
    return total


@njit
def _block_of_four(x, y, z, u, columns):
    """Of four rows that lie apart: memory gives them faster than one after the other."""
    one = two = three = four = x.dtype.type(0)
    if columns.size:
        for i in range(x.size):
            factor = columns[i]
            a, b = _product(x[i], factor), _product(y[i], factor)
            c, d = _product(z[i], factor), _product(u[i], factor)
            one += a * a
            two += b * b
            three += c * c
            four += d * d
    else:
        for i in range(x.size):
            one += x[i] * x[i]
            two += y[i] * y[i]
            three += z[i] * z[i]
            four += u[i] * u[i]
    return np.float64(one), np.float64(two), np.float64(three), np.float64(four)


@njit
def _of_four_rows(x, y, z, u, columns):
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    for start in range(0, x.size, BLOCK):
        end = start + BLOCK
        a, b, c, d = _block_of_four(
            x[start:end], y[start:end], z[start:end], u[start:end], columns[start:end]
        )
        one, two, three, four = one + a, two + b, three + c, four + d
    return one, two, three, four


@njit
def _in_turn(w, inner, columns, out):
    """Of all rows, those of six places in turn, a piece of each; what is too small or too large is left."""
    part = (out.size + SIX - 1) // SIX
    out[:] = 0
    for first in range(part):
        for start in range(0, inner, PIECE):
            stop = min(start + PIECE, inner)
            for row in range(first, out.size, part):
                piece = w[row * inner + start : row * inner + stop]
                out[row] += _of_weighted(piece, columns[start:stop]) if columns.size else _of_plain(piece)


@njit
def _together(w, inner, columns, out):
    """Of all rows, those of the four quarters together; what is too small or too large is left."""
    quarter = out.size // FOUR
    for row in range(quarter):
        x, y, z, u = (
            w[row * inner : (row + 1) * inner],
            w[(row + quarter) * inner : (row + quarter + 1) * inner],
            w[(row + 2 * quarter) * inner : (row + 2 * quarter + 1) * inner],
            w[(row + 3 * quarter) * inner : (row + 3 * quarter + 1) * inner],
        )
        one, two, three, four = _of_four_rows(x, y, z, u, columns)
        out[row], out[row + quarter] = one, two
        out[row + 2 * quarter], out[row + 3 * quarter] = three, four
    for row in range(FOUR * quarter, out.size):
        out[row] = _of_row(w[row * inner : (row + 1) * inner], columns)


@njit
def _of_rows(w, inner, columns, out):
    """Of all rows."""
    if ZEN:
        _in_turn(w, inner, columns, out)
    else:
        _together(w, inner, columns, out)
    for row in range(out.size):
        if not SMALL < out[row] < LARGE:
            out[row] = _of_odd_row(w[row * inner : (row + 1) * inner], columns)


@njit
def _of_odd_row(x, columns):
    """In float64, of a row whose squares are too small or too large for less."""
    total = 0.0
    for i in range(x.size):
        entry = np.float64(x[i]) * (np.float64(columns[i]) if columns.size else 1.0)
        total += entry * entry
    return total


@njit
def _of_columns(w, rows, inner, first, last, out):
    narrow()
    width = last - first
    part = np.empty(width, w.dtype)
    for block in range(0, w.size // inner, AT_ONCE):
        part[:] = 0
        for row in range(block, min(block + AT_ONCE, w.size // inner)):
            x = w[row * inner + first : row * inner + last]
            factor = rows[row] if rows.size else w.dtype.type(1)
            for i in range(width):
                entry = _product(x[i], factor)
                part[i] += entry * entry
        for i in range(width):
            out[i] += part[i]
    for i in range(width):
        if not SMALL < out[i] < LARGE:
            out[i] = _of_odd_column(w, rows, inner, first + i)


@njit
def _of_odd_column(w, rows, inner, column):
    """In float64, of a column whose squares are too small or too large for less."""
    total = 0.0
    for row in range(w.size // inner):
        entry = np.float64(w[row * inner + column]) * (np.float64(rows[row]) if rows.size else 1.0)
        total += entry * entry
    return total


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
                _of_rows(w[first * inner : last * inner], inner, columns, out[start + first : start + last])
            else:
                rows = array_at(about[ROWS], count, like)
                _of_columns(w, rows, inner, first, last, out[start + first : start + last])

    return squares


squares = _made(SOURCES)
