# pyright: basic
"""Steps of long rows on the unit sphere: looked at twice, the second time where the first has left them.

The formulas are those of :mod:`.filters`. Rows that fit the first cache are moved one by one, from the end,
which has been read last. Longer ones have to come from the second cache: then several are read before any is
moved, because memory that has to stop takes a while to start again. Of rows of 4,608 entries that is a tenth
of their step (AMD Zen 4). Of still longer ones two would not fit the second cache: these are taken like short
ones.

With momentum, unless it is Nesterov's, the buffer takes the gradient up at the first look, so that the second
is at two arrays instead of three: another tenth.
"""

import math

import numpy as np

from symoptim.kernels.cpu.compiled import inlined, narrow, njit
from symoptim.kernels.cpu.filters import BLOCK, SAFE, SMALL, inverse_norm, move
from symoptim.kernels.cpu.machine import FAR, NEAR
from symoptim.kernels.numbers import MOMENTUM, NEW, OLD, RATE, SIGN

PIECE = 1024
"""Entries of a row that is moved from its end which are moved in order."""


@njit
def _products_of_two(w, g, begin, end):
    narrow()
    ww = wg = gg = w.dtype.type(0)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, y = w[i], g[i]
        ww += x * x
        wg += x * y
        gg += y * y
    return np.float64(ww), np.float64(wg), np.float64(gg)


@njit
def _products_of_three(w, g, m, begin, end, old, new):
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
def _take_up(w, g, m, begin, end, momentum, sign):
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
def _takes_up(m, number):
    """Whether what moves a row is what the buffer will be, but for the part along the row."""
    return m.size > 0 and number[OLD] == number[MOMENTUM] * number[NEW]


@inlined
def _products(w, g, m, begin, end, number):
    """Of a row: ww, wg, wm, and dd of what moves it, ``d = OLD m + NEW g``.

    A buffer that takes the gradient up does so; it has the place of the gradient then.
    """
    ww = wg = wm = dd = 0.0
    new = number[NEW] * number[SIGN]
    for start in range(begin, end, BLOCK):
        stop = min(start + BLOCK, end)
        if _takes_up(m, number):
            one, two, three = _take_up(w, g, m, start, stop, number[MOMENTUM], number[SIGN])
            ww, wg, dd = ww + one, wg + number[SIGN] * two, dd + new * new * three
        elif m.size:
            one, two, three, four = _products_of_three(w, g, m, start, stop, number[OLD], new)
            ww, wg, wm, dd = ww + one, wg + two, wm + three, dd + four
        else:
            one, two, three = _products_of_two(w, g, start, stop)
            ww, wg, dd = ww + one, wg + two, dd + new * new * three
    return ww, wg, wm, dd


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
def _move_both(w, m, begin, end, a, b, f):
    """``w = a w + b m`` and ``m = m + f w``, of what they were."""
    narrow()
    a, b, f = w.dtype.type(a), w.dtype.type(b), w.dtype.type(f)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, z = w[i], m[i]
        w[i] = a * x + b * z
        m[i] = z + f * x


@inlined
def _move(w, g, m, begin, end, a, b, c, f, number):
    if _takes_up(m, number):
        _move_both(w, m, begin, end, a, b * number[SIGN], f)
    elif m.size:
        move_with_three(w, g, m, begin, end, a, b, c, number[MOMENTUM], number[SIGN], f)
    else:
        move(w, g, begin, end, a, b)


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


@njit
def _near_rows(w, g, m, length, number):
    """Step rows one by one, each moved from its end."""
    for row in range(0, w.size, length):
        end = row + length
        a, b, c, f, is_unit = coefficients(w, _products(w, g, m, row, end, number), number)
        for begin in range(row + (length - 1) // PIECE * PIECE, row - 1, -PIECE):
            _move(w, g, m, begin, min(begin + PIECE, end), a, b, c, f, number)
        if not is_unit:
            divide(w, row, end)


@njit
def _far_rows(w, g, m, length, together, number):
    """Step so many rows at a time."""
    found = np.empty((together, 5))
    for first in range(0, w.size, together * length):
        rows = min(together, (w.size - first) // length)
        for row in range(rows):
            begin = first + row * length
            products = _products(w, g, m, begin, begin + length, number)
            a, b, c, f, is_unit = coefficients(w, products, number)
            found[row, 0], found[row, 1], found[row, 2], found[row, 3], found[row, 4] = a, b, c, f, is_unit
        for row in range(rows):
            begin, end = first + row * length, first + (row + 1) * length
            _move(w, g, m, begin, end, found[row, 0], found[row, 1], found[row, 2], found[row, 3], number)
            if not found[row, 4]:
                divide(w, begin, end)


@njit
def long_rows(w, g, m, length, number):
    """Step rows of that length on the unit sphere."""
    size = length * w.itemsize * (3 if m.size else 2)
    if NEAR < size <= FAR // 2:
        _far_rows(w, g, m, length, FAR // size, number)
    else:
        _near_rows(w, g, m, length, number)
