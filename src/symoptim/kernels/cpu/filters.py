# pyright: basic
r"""Steps of filters that lie in one piece: read, two numbers found, written while they are near.

Of a filter w with gradient g and momentum b, with :math:`a = 1 / |w|` (1 where w is of unit norm already) and
the numbers of :mod:`symoptim.kernels.numbers`:

.. math::
    \text{scaled:} \quad b' &= \mu b + |w|^2 g, &
    w' &= (1 - r \lambda) w - r (\alpha b + \beta |w|^2 g) \\
    \text{unit:} \quad b' &= \mu b + g - (\mu c_b + c_g) w, &
    w' &\propto (a + r (\alpha c_b + \beta c_g)) w - r (\alpha b + \beta g), \quad
    c_x = a^2 \langle w, x\rangle

so that both are sums of w, g and b with coefficients that hold for the whole filter. The norm of the new
filter follows from the same sums, without another look, unless the step is so long that they would cancel.
"""

import math

import numpy as np

from symoptim.kernels.cpu.compiled import in_order, narrow, njit
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN

BLOCK = 2048  # entries summed in their own precision; sums of blocks are float64, for long filters
SAFE = 0.25  # squared length of a step up to which sums do not cancel
SMALL = 1e-30  # squares up to which float32 has few digits left


@njit
def _block_of_one(w):
    narrow()
    ww = w.dtype.type(0)
    for i in range(w.size):
        ww += w[i] * w[i]
    return ww


@njit
def products_of_one(w):
    """Of weights with themselves."""
    if w.size <= BLOCK:
        return np.float64(_block_of_one(w))
    total = 0.0
    for start in range(0, w.size, BLOCK):
        total += _block_of_one(w[start : start + BLOCK])
    return total


@njit
def _block_of_two(w, g):
    narrow()
    ww = wg = gg = w.dtype.type(0)
    for i in range(w.size):
        ww += w[i] * w[i]
        wg += w[i] * g[i]
        gg += g[i] * g[i]
    return np.float64(ww), np.float64(wg), np.float64(gg)


@njit
def _products_of_two(w, g):
    """Of weights and gradient: ww, wg, gg."""
    if w.size <= BLOCK:
        return _block_of_two(w, g)
    ww, wg, gg = 0.0, 0.0, 0.0
    for start in range(0, w.size, BLOCK):
        one, two, three = _block_of_two(w[start : start + BLOCK], g[start : start + BLOCK])
        ww, wg, gg = ww + one, wg + two, gg + three
    return ww, wg, gg


@njit
def _block_of_three(w, g, m, old, new):
    narrow()
    ww = wg = wm = dd = w.dtype.type(0)
    for i in range(w.size):
        d = old * m[i] + new * g[i]
        ww += w[i] * w[i]
        wg += w[i] * g[i]
        wm += w[i] * m[i]
        dd += d * d
    return np.float64(ww), np.float64(wg), np.float64(wm), np.float64(dd)


@njit
def _products_of_three(w, g, m, old, new):
    """Of weights, gradient and buffer: ww, wg, wm, and dd of ``d = old m + new g``."""
    old, new = w.dtype.type(old), w.dtype.type(new)
    if w.size <= BLOCK:
        return _block_of_three(w, g, m, old, new)
    ww, wg, wm, dd = 0.0, 0.0, 0.0, 0.0
    for start in range(0, w.size, BLOCK):
        end = start + BLOCK
        one, two, three, four = _block_of_three(w[start:end], g[start:end], m[start:end], old, new)
        ww, wg, wm, dd = ww + one, wg + two, wm + three, dd + four
    return ww, wg, wm, dd


# Positions are unsigned: numba would look whether others are counted from the end.
@njit
def move(w, g, begin, end, a, b):
    """``w = a w + b g``, from one position to another."""
    narrow()
    a, b = w.dtype.type(a), w.dtype.type(b)
    for i in range(np.uintp(begin), np.uintp(end)):
        w[i] = a * w[i] + b * g[i]


@njit
def move_with_buffer(w, g, m, begin, end, a, b, c, d, e):
    """``w = a w + b g + c m`` and ``m = d m + e g``, of what they were."""
    narrow()
    a, b, c = w.dtype.type(a), w.dtype.type(b), w.dtype.type(c)
    d, e = w.dtype.type(d), w.dtype.type(e)
    for i in range(np.uintp(begin), np.uintp(end)):
        y, z = g[i], m[i]
        m[i] = d * z + e * y
        w[i] = a * w[i] + b * y + c * z


@njit
def _turn_with_buffer(w, g, m, a, b, c, d, e, f):
    """``w = a w + b g + c m`` and ``m = d m + e g + f w``, of what they were."""
    narrow()
    a, b, c = w.dtype.type(a), w.dtype.type(b), w.dtype.type(c)
    d, e, f = w.dtype.type(d), w.dtype.type(e), w.dtype.type(f)
    for i in range(w.size):
        x, y, z = w[i], g[i], m[i]
        m[i] = d * z + e * y + f * x
        w[i] = a * x + b * y + c * z


@njit
def _times(w, factor):
    narrow()
    factor = w.dtype.type(factor)
    for i in range(w.size):
        w[i] *= factor


@njit
def inverse_norm(ww, dtype_like):
    """One over the norm, or one where the norm is that to within four rounding steps."""
    norm = math.sqrt(ww)
    return 1.0 if abs(norm - 1) <= 4 * np.finfo(dtype_like.dtype).eps else 1 / norm


@njit
def linear(w, g, m, square, number):
    """Step along the gradient times a number."""
    rate, slope = number[RATE], number[SIGN] * square
    a, b = 1 - rate * number[DECAY], -rate * number[NEW] * slope
    if m.size:
        move_with_buffer(w, g, m, 0, w.size, a, b, -rate * number[OLD], number[MOMENTUM], slope)
    else:
        move(w, g, 0, w.size, a, b)


@njit
def unit(w, g, m, number):
    """Step of a filter on the unit sphere."""
    wm, new = 0.0, number[NEW] * number[SIGN]
    if m.size:
        ww, wg, wm, squared = _products_of_three(w, g, m, number[OLD], new)
    else:
        ww, wg, gg = _products_of_two(w, g)
        squared = new * new * gg
    to_unit(w, g, m, ww, wg, wm, squared, number)


@njit
def to_unit(w, g, m, ww, wg, wm, squared, number):
    """Step of a filter on the unit sphere, from its products; what is projected has that squared length."""
    rate, sign, old, new = number[RATE], number[SIGN], number[OLD], number[NEW]
    a = inverse_norm(ww, w)
    along = a * a * (old * wm + new * sign * wg)
    scale, safe = 1.0, rate * rate * squared < SAFE and ww > SMALL
    if safe:
        tangent = max(squared - (along / a) ** 2, 0.0)
        scale = 1 / math.sqrt(a * a * ww + rate * rate * tangent)
    to_w, to_g, to_m = scale * (a + rate * along), -scale * rate * new * sign, -scale * rate * old
    if m.size:
        back = -a * a * (number[MOMENTUM] * wm + sign * wg)
        _turn_with_buffer(w, g, m, to_w, to_g, to_m, number[MOMENTUM], sign, back)
    else:
        move(w, g, 0, w.size, to_w, to_g)
    if not safe:
        _times(w, 1 / math.sqrt(products_of_one(w)))


@in_order
def factored(w, g, m, row, columns, twice, number):
    """Step of a row whose gradient is multiplied by its factor and its columns', or by their squares."""
    narrow()
    rate = number[RATE]
    a, b = w.dtype.type(1 - rate * number[DECAY]), w.dtype.type(-rate * number[NEW])
    c, d = w.dtype.type(-rate * number[OLD]), w.dtype.type(number[MOMENTUM])
    sign = w.dtype.type(number[SIGN])
    for i in range(w.size):
        y = sign * g[i] * row * columns[i]
        if twice:
            y = y * row * columns[i]
        if m.size:
            w[i] = a * w[i] + b * y + c * m[i]
            m[i] = d * m[i] + y
        else:
            w[i] = a * w[i] + b * y
