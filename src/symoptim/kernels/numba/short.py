# pyright: basic
"""Steps of short rows, a matrix of them at a time: to cut out a row takes longer than to step it.

The formulas are those of :mod:`.filters`.
"""

import math

from symoptim.kernels.numba.compiled import narrow, njit
from symoptim.kernels.numba.filters import SAFE, SMALL, inverse_norm
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN

SHORT = 512  # entries of rows; longer ones gain by being taken in turn with the next, or from their end


@njit
def short_scaled_rows(w, g, number):
    """Step rows in the scaled metric."""
    narrow()
    rate = number[RATE]
    a = w.dtype.type(1 - rate * number[DECAY])
    for row in range(w.shape[0]):
        square = w.dtype.type(0)
        for i in range(w.shape[1]):
            square += w[row, i] * w[row, i]
        b = w.dtype.type(-rate * number[NEW] * number[SIGN] * square)
        for i in range(w.shape[1]):
            w[row, i] = a * w[row, i] + b * g[row, i]


@njit
def short_scaled_rows_with_buffer(w, g, m, number):
    """Step rows in the scaled metric, with momentum."""
    narrow()
    rate = number[RATE]
    a, c = w.dtype.type(1 - rate * number[DECAY]), w.dtype.type(-rate * number[OLD])
    d = w.dtype.type(number[MOMENTUM])
    for row in range(w.shape[0]):
        square = w.dtype.type(0)
        for i in range(w.shape[1]):
            square += w[row, i] * w[row, i]
        e = w.dtype.type(number[SIGN] * square)
        b = w.dtype.type(-rate * number[NEW] * number[SIGN] * square)
        for i in range(w.shape[1]):
            y, z = g[row, i], m[row, i]
            m[row, i] = d * z + e * y
            w[row, i] = a * w[row, i] + b * y + c * z


@njit
def short_unit_rows(w, g, number):
    """Step rows on the unit sphere."""
    narrow()
    rate, sign, new = number[RATE], number[SIGN], number[NEW]
    for row in range(w.shape[0]):
        ww = wg = gg = w.dtype.type(0)
        for i in range(w.shape[1]):
            ww += w[row, i] * w[row, i]
            wg += w[row, i] * g[row, i]
            gg += g[row, i] * g[row, i]
        a = inverse_norm(ww, w)
        along = a * a * new * sign * wg
        squared = new * new * gg
        safe = rate * rate * squared < SAFE and ww > SMALL
        scale = 1.0
        if safe:
            tangent = max(squared - (along / a) ** 2, 0.0)
            scale = 1 / math.sqrt(a * a * ww + rate * rate * tangent)
        to_w, to_g = w.dtype.type(scale * (a + rate * along)), w.dtype.type(-scale * rate * new * sign)
        for i in range(w.shape[1]):
            w[row, i] = to_w * w[row, i] + to_g * g[row, i]
        if not safe:
            _divide(w, row)


@njit
def short_unit_rows_with_buffer(w, g, m, number):
    """Step rows on the unit sphere, with momentum."""
    narrow()
    rate, sign, old, new = number[RATE], number[SIGN], number[OLD], number[NEW]
    d, e = w.dtype.type(number[MOMENTUM]), w.dtype.type(sign)
    by_m, by_g = w.dtype.type(old), w.dtype.type(new * sign)
    for row in range(w.shape[0]):
        ww = wg = wm = squared = w.dtype.type(0)
        for i in range(w.shape[1]):
            x, y, z = w[row, i], g[row, i], m[row, i]
            moved = by_m * z + by_g * y
            ww += x * x
            wg += x * y
            wm += x * z
            squared += moved * moved
        a = inverse_norm(ww, w)
        along = a * a * (old * wm + new * sign * wg)
        safe = rate * rate * squared < SAFE and ww > SMALL
        scale = 1.0
        if safe:
            tangent = max(squared - (along / a) ** 2, 0.0)
            scale = 1 / math.sqrt(a * a * ww + rate * rate * tangent)
        to_w, to_g = w.dtype.type(scale * (a + rate * along)), w.dtype.type(-scale * rate * new * sign)
        to_m, f = w.dtype.type(-scale * rate * old), w.dtype.type(-a * a * (d * wm + sign * wg))
        for i in range(w.shape[1]):
            x, y, z = w[row, i], g[row, i], m[row, i]
            m[row, i] = d * z + e * y + f * x
            w[row, i] = to_w * x + to_g * y + to_m * z
        if not safe:
            _divide(w, row)


@njit
def _divide(w, row):
    """Divide a row by its norm."""
    narrow()
    square = w.dtype.type(0)
    for i in range(w.shape[1]):
        square += w[row, i] * w[row, i]
    scale = w.dtype.type(1 / math.sqrt(square))
    for i in range(w.shape[1]):
        w[row, i] *= scale


@njit
def short_rows(w, g, m, length, scaled, number):
    """Step rows of that length, in the scaled metric or on the unit sphere."""
    shape = w.size // length, length
    x, y = w.reshape(shape), g.reshape(shape)
    if m.size:
        z = m.reshape(shape)
        if scaled:
            short_scaled_rows_with_buffer(x, y, z, number)
        else:
            short_unit_rows_with_buffer(x, y, z, number)
    elif scaled:
        short_scaled_rows(x, y, number)
    else:
        short_unit_rows(x, y, number)
