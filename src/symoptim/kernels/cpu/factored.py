# pyright: basic
"""Steps in the full metric: each entry of the gradient is multiplied by factors of its row and its column.

On AMD's Zen, without momentum, rows of two places are stepped, a piece of each in turn: memory is read faster
then, and factors of columns are still at hand for the second.
"""

from symoptim.kernels.cpu.compiled import in_order, narrow, njit
from symoptim.kernels.cpu.machine import TURN, ZEN
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


@njit
def factored_rows(w, g, m, inner, rows, columns, twice, number):
    """Step rows of so many entries."""
    half, piece = ((rows.size + 1) // 2, TURN) if ZEN and not m.size else (rows.size, max(1, inner))
    for first in range(half):
        for start in range(0, inner, piece):
            stop = min(start + piece, inner)
            for row in range(first, rows.size, half):
                here, end = row * inner + start, row * inner + stop
                x, y, z = w[here:end], g[here:end], m[here:end]
                _factored(x, y, z, rows[row], columns[start:stop], twice, number)
