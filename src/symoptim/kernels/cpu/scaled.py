# pyright: basic
"""Steps in the scaled metric of rows that follow each other in memory.

The squared norm of the next row is taken while this one is stepped. Otherwise memory would be asked for one
thing at a time, first for weights and then for gradients, and would take a fifth longer.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import njit
from symoptim.kernels.cpu.filters import BLOCK, linear, products_of_one
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN


@njit
def _move(w, g, ahead, a, b):
    """``w = a w + b g``; the squared norm of what is ahead."""
    a, b = w.dtype.type(a), w.dtype.type(b)
    square = w.dtype.type(0)
    for i in range(w.size):
        square += ahead[i] * ahead[i]
        w[i] = a * w[i] + b * g[i]
    return square


@njit
def _move_with_buffer(w, g, m, ahead, a, b, c, d, e):
    """``w = a w + b g + c m`` and ``m = d m + e g``, of what they were; the squared norm of what is ahead."""
    a, b, c = w.dtype.type(a), w.dtype.type(b), w.dtype.type(c)
    d, e = w.dtype.type(d), w.dtype.type(e)
    square = w.dtype.type(0)
    for i in range(w.size):
        y, z = g[i], m[i]
        square += ahead[i] * ahead[i]
        m[i] = d * z + e * y
        w[i] = a * w[i] + b * y + c * z
    return square


@njit
def _row(w, g, m, ahead, square, number):
    """Step a row of that squared norm; the squared norm of the row ahead."""
    rate, slope = number[RATE], number[SIGN] * square
    a, b, c = 1 - rate * number[DECAY], -rate * number[NEW] * slope, -rate * number[OLD]
    d = number[MOMENTUM]
    if w.size <= BLOCK:
        if m.size:
            return np.float64(_move_with_buffer(w, g, m, ahead, a, b, c, d, slope))
        return np.float64(_move(w, g, ahead, a, b))
    total = 0.0
    for start in range(0, w.size, BLOCK):
        end = min(start + BLOCK, w.size)
        x, y, z, next_ = w[start:end], g[start:end], m[start:end], ahead[start:end]
        total += _move_with_buffer(x, y, z, next_, a, b, c, d, slope) if m.size else _move(x, y, next_, a, b)
    return total


@njit
def scaled_rows(w, g, m, length, number):
    """Step rows of that length."""
    rows = w.size // length
    square = products_of_one(w[:length])
    for row in range(rows - 1):
        here, end = row * length, (row + 1) * length
        square = _row(w[here:end], g[here:end], m[here:end], w[end : end + length], square, number)
    here = (rows - 1) * length
    linear(w[here:], g[here:], m[here:], square, number)
