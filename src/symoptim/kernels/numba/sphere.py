# pyright: basic
"""Parts of the step of a row on the unit sphere: products, what follows from them, and the move.

The formulas are those of :mod:`.filters`.
"""

import math

import numpy as np

from symoptim.kernels.numba.compiled import inlined, narrow, njit
from symoptim.kernels.numba.filters import SAFE, SMALL, inverse_norm
from symoptim.kernels.numbers import MOMENTUM, NEW, OLD, RATE, SIGN


@njit
def products_of_two(w, g, begin, end):
    """ww, wg and gg of a piece."""
    narrow()
    ww = wg = gg = w.dtype.type(0)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, y = w[i], g[i]
        ww += x * x
        wg += x * y
        gg += y * y
    return np.float64(ww), np.float64(wg), np.float64(gg)


@njit
def products_of_three(w, g, m, begin, end, old, new):
    """ww, wg, wm of a piece, and dd of ``d = old m + new g``."""
    narrow()
    old, new = w.dtype.type(old), w.dtype.type(new)
    ww = wg = wm = dd = w.dtype.type(0)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, y, z = w[i], g[i], m[i]
        d = old * z + new * y
        ww += x * x
        wg += x * y
        wm += x * z
        dd += d * d
    return np.float64(ww), np.float64(wg), np.float64(wm), np.float64(dd)


@njit
def take_up(w, g, m, begin, end, momentum, sign):
    """``m = MOMENTUM m + SIGN g``, and products of weights and that."""
    narrow()
    momentum, sign = w.dtype.type(momentum), w.dtype.type(sign)
    ww = wm = mm = w.dtype.type(0)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, z = w[i], momentum * m[i] + sign * g[i]
        m[i] = z
        ww += x * x
        wm += x * z
        mm += z * z
    return np.float64(ww), np.float64(wm), np.float64(mm)


@inlined
def coefficients(w, products, number):
    """What moves a row: ``w = a w + b g + c m`` and ``m = MOMENTUM m + SIGN g + f w``. Is |w| one then?"""
    ww, wg, wm, dd = products
    rate, sign, old, new = number[RATE], number[SIGN], number[OLD], number[NEW]
    inverse = inverse_norm(ww, w)
    along = inverse * inverse * (old * wm + new * sign * wg)
    scale, is_unit = 1.0, rate * rate * dd < SAFE and ww > SMALL
    if is_unit:
        tangent = max(dd - (along / inverse) ** 2, 0.0)
        scale = 1 / math.sqrt(inverse * inverse * ww + rate * rate * tangent)
    a, b, c = scale * (inverse + rate * along), -scale * rate * new * sign, -scale * rate * old
    return a, b, c, -inverse * inverse * (number[MOMENTUM] * wm + sign * wg), is_unit


@njit
def move_with_three(w, g, m, begin, end, a, b, c, d, e, f):
    """``w = a w + b g + c m`` and ``m = d m + e g + f w``, of what they were."""
    narrow()
    a, b, c = w.dtype.type(a), w.dtype.type(b), w.dtype.type(c)
    d, e, f = w.dtype.type(d), w.dtype.type(e), w.dtype.type(f)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, y, z = w[i], g[i], m[i]
        m[i] = d * z + e * y + f * x
        w[i] = a * x + b * y + c * z


@njit
def move_both(w, m, begin, end, a, b, f):
    """``w = a w + b m`` and ``m = m + f w``, of what they were."""
    narrow()
    a, b, f = w.dtype.type(a), w.dtype.type(b), w.dtype.type(f)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, z = w[i], m[i]
        w[i] = a * x + b * z
        m[i] = z + f * x


@njit
def divide(w, begin, end):
    """Divide a row by its norm."""
    narrow()
    square = 0.0
    for i in range(np.uintp(begin), np.uintp(end)):
        square += np.float64(w[i]) * np.float64(w[i])
    scale = w.dtype.type(1 / math.sqrt(square))
    for i in range(np.uintp(begin), np.uintp(end)):
        w[i] *= scale
