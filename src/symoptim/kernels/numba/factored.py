# pyright: basic
"""Steps in the full metric: each entry of the gradient is multiplied by factors of its row and its column.

On AMD's Zen, without momentum, a row of each half of a matrix is stepped in one loop: memory is read faster
then, and factors of columns serve both. A tenth of a step is gained.
"""

from symoptim.kernels.numba.compiled import in_order, narrow, njit
from symoptim.kernels.numba.machine import ZEN
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN


@in_order
def _factored(w, g, m, row, columns, twice, number):
    """Step of a row whose gradient is multiplied by its factor and its columns', or by their squares."""
    narrow()
    rate = number[RATE]
    a, b = w.dtype.type(1 - rate * number[DECAY]), w.dtype.type(-rate * number[NEW])
    c, d = w.dtype.type(-rate * number[OLD]), w.dtype.type(number[MOMENTUM])
    signed = w.dtype.type(number[SIGN]) * row
    for i in range(w.size):
        y = g[i] * signed * columns[i]
        if twice:
            y = y * row * columns[i]
        if m.size:
            w[i] = a * w[i] + b * y + c * m[i]
            m[i] = d * m[i] + y
        else:
            w[i] = a * w[i] + b * y


@in_order
def _factored_pair(w, g, x, y, row, other, columns, twice, number):
    """Step of a row and another, without momentum."""
    narrow()
    a, b = w.dtype.type(1 - number[RATE] * number[DECAY]), w.dtype.type(-number[RATE] * number[NEW])
    signed, other_signed = w.dtype.type(number[SIGN]) * row, w.dtype.type(number[SIGN]) * other
    for i in range(w.size):
        u, v = g[i] * signed * columns[i], y[i] * other_signed * columns[i]
        if twice:
            u, v = u * row * columns[i], v * other * columns[i]
        w[i] = a * w[i] + b * u
        x[i] = a * x[i] + b * v


@njit
def factored_rows(w, g, m, inner, rows, columns, twice, number):
    """Step rows of so many entries."""
    half = rows.size // 2 if ZEN and not m.size else 0
    for row in range(half):
        here, there = row * inner, (row + half) * inner
        end, last = here + inner, there + inner
        about = rows[row], rows[row + half]
        _factored_pair(w[here:end], g[here:end], w[there:last], g[there:last], *about, columns, twice, number)
    for row in range(2 * half, rows.size):
        here, end = row * inner, (row + 1) * inner
        _factored(w[here:end], g[here:end], m[here:end], rows[row], columns, twice, number)
