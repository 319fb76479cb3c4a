# pyright: basic
"""Steps of filters whose entries lie apart, columns of a matrix: neighbors are stepped together."""

import math

import numpy as np

from symoptim.kernels.numba.compiled import narrow, njit
from symoptim.kernels.numba.filters import inverse_norm
from symoptim.kernels.numbers import DECAY, MOMENTUM, NEW, OLD, RATE, SIGN
from symoptim.kernels.table import SCALED

ROWS_AT_ONCE = 64  # summed in their own precision before they are added to float64


@njit
def _add_products(x, y, stride, width, sums):
    """Add the products of stretches that lie ``stride`` apart, place by place."""
    narrow()
    rows = (x.size - width) // stride + 1
    part = np.empty(width, x.dtype)
    for block in range(0, rows, ROWS_AT_ONCE):
        part[:] = 0
        for row in range(block, min(block + ROWS_AT_ONCE, rows)):
            u, v = x[row * stride : row * stride + width], y[row * stride : row * stride + width]
            for i in range(width):
                part[i] += u[i] * v[i]
        for i in range(width):
            sums[i] += part[i]


@njit
def _sums(x, y, stride, width, inner):
    """Inner products of the filters, at each of their places."""
    sums = np.zeros(width)
    _add_products(x, y, stride, width, sums)
    if inner > 1:
        for start in range(0, width, inner):
            stretch = sums[start : start + inner]
            stretch[:] = stretch.sum()
    return sums


@njit
def _move(w, g, m, stride, a, b, c, d, e, f):
    """``w = a w + b g + c m`` and ``m = d m + e g + f w``, of what they were; a, b, e, f by place."""
    narrow()
    width = a.size
    for row in range((w.size - width) // stride + 1):
        here, end = row * stride, row * stride + width
        x, y = w[here:end], g[here:end]
        if m.size:
            z = m[here:end]
            for i in range(width):
                u, v = x[i], z[i]
                x[i] = a[i] * u + b[i] * y[i] + c * v
                z[i] = d * v + e[i] * y[i] + f[i] * u
        else:
            for i in range(width):
                x[i] = a[i] * x[i] + b[i] * y[i]


@njit
def apart(w, g, m, stride, width, inner, kind, number):
    """Step neighboring filters: stretches of ``width`` entries that lie ``stride`` apart."""
    rate, sign, old, new = number[RATE], number[SIGN], number[OLD], number[NEW]
    a, b, e = np.empty(width, w.dtype), np.empty(width, w.dtype), np.empty(width, w.dtype)
    f = np.zeros(width, w.dtype)
    ww = _sums(w, w, stride, width, inner)
    if kind == SCALED:
        for i in range(width):
            a[i], b[i], e[i] = 1 - rate * number[DECAY], -rate * new * sign * ww[i], sign * ww[i]
    else:
        wg = _sums(w, g, stride, width, inner)
        wm = _sums(w, m, stride, width, inner) if m.size else np.zeros(width)
        for i in range(width):
            unit = inverse_norm(ww[i], w)
            a[i] = unit + rate * unit * unit * (old * wm[i] + new * sign * wg[i])
            b[i], e[i] = -rate * new * sign, sign
            f[i] = -unit * unit * (number[MOMENTUM] * wm[i] + sign * wg[i])
    _move(w, g, m, stride, a, b, w.dtype.type(-rate * old), w.dtype.type(number[MOMENTUM]), e, f)
    if kind != SCALED:
        norms = _sums(w, w, stride, width, inner)
        for i in range(width):
            a[i], b[i] = 1 / math.sqrt(norms[i]), 0
        _move(w, w, m[:0], stride, a, b, w.dtype.type(0), w.dtype.type(0), e, f)
