# pyright: basic
"""Steps of long rows on the unit sphere: with momentum, products of two rows at once, or of a row's halves.

Weights, gradient and buffer are three streams of memory. Of six, a core of Intel's reads a twentieth more in
a second, and one of AMD's a fifth less: those take rows one by one.
"""

import numpy as np

from symoptim.kernels.cpu.compiled import narrow, njit
from symoptim.kernels.cpu.filters import BLOCK
from symoptim.kernels.cpu.machine import MANY_STREAMS
from symoptim.kernels.cpu.sphere import coefficients, divide, long_rows, move_with_three
from symoptim.kernels.numbers import MOMENTUM, NEW, OLD, SIGN

LONG, LONGEST = 2048, 8192  # entries of rows that are taken in pairs; longer ones are, by halves


@njit
def _block(w, g, m, x, y, z, old, new):
    narrow()
    ww = wg = wm = dd = w.dtype.type(0)
    xx = xy = xz = ee = w.dtype.type(0)
    for i in range(w.size):
        d, e = old * m[i] + new * g[i], old * z[i] + new * y[i]
        ww += w[i] * w[i]
        wg += w[i] * g[i]
        wm += w[i] * m[i]
        dd += d * d
        xx += x[i] * x[i]
        xy += x[i] * y[i]
        xz += x[i] * z[i]
        ee += e * e
    return (ww, wg, wm, dd), (xx, xy, xz, ee)


@njit
def _products(w, g, m, x, y, z, number, found):
    """Products of two rows with their gradients and buffers, as in :mod:`.sphere`, written to ``(2, 4)``."""
    old, new = w.dtype.type(number[OLD]), w.dtype.type(number[NEW] * number[SIGN])
    found[:] = 0.0
    for start in range(0, w.size, BLOCK):
        end = start + BLOCK
        one, other = _block(
            w[start:end], g[start:end], m[start:end], x[start:end], y[start:end], z[start:end], old, new
        )
        for i in range(4):
            found[0, i] += one[i]
            found[1, i] += other[i]


@njit
def _turn(w, g, m, begin, end, products, number):
    """Step a row whose products are known."""
    a, b, c, f, is_unit = coefficients(w, products, number)
    move_with_three(w, g, m, begin, end, a, b, c, number[MOMENTUM], number[SIGN], f)
    if not is_unit:
        divide(w, begin, end)


@njit
def _in_pairs(w, g, m, length, number):
    """Step rows two by two; the last may be its own neighbor, for its sums to be added in the same order."""
    found, rows = np.zeros((2, 4)), w.size // length
    for row in range(0, rows, 2):
        other = min(row + 1, rows - 1)
        a, b = row * length, other * length
        c, d = a + length, b + length
        _products(w[a:c], g[a:c], m[a:c], w[b:d], g[b:d], m[b:d], number, found)
        one, two = found[0], found[1]
        _turn(w, g, m, a, c, (one[0], one[1], one[2], one[3]), number)
        if other > row:
            _turn(w, g, m, b, d, (two[0], two[1], two[2], two[3]), number)


@njit
def _by_halves(w, g, m, length, number):
    """Step rows one by one."""
    found = np.zeros((2, 4))
    for row in range(w.size // length):
        a, b, c = row * length, row * length + length // 2, (row + 1) * length
        _products(w[a:b], g[a:b], m[a:b], w[b:c], g[b:c], m[b:c], number, found)
        both = found[0] + found[1]
        _turn(w, g, m, a, c, (both[0], both[1], both[2], both[3]), number)


@njit
def unit_rows(w, g, m, length, number):
    """Step rows of that length on the unit sphere, each in the way that is fastest here."""
    if MANY_STREAMS and m.size and LONG <= length <= LONGEST:
        _in_pairs(w, g, m, length, number)
    elif MANY_STREAMS and m.size and length > LONGEST and length % 2 == 0:
        _by_halves(w, g, m, length, number)
    else:
        long_rows(w, g, m, length, number)
