# pyright: basic
r"""Optimizer steps on a CPU: two coefficients are found for every filter, then it is moved in one pass.

Of a filter w with gradient g and momentum buffer m, a step is

.. math::
    w' = A w + B g + C m, \qquad m' = D m + E g + F w,

and the numbers A to F hold for the whole filter. With the hyperparameters of
:mod:`symoptim.kernels.descriptor` (rate r, momentum :math:`\mu`, :math:`\alpha`, :math:`\beta`, decay
:math:`\lambda`; plain updates are scaled ones with 1 instead of :math:`|w|^2`) they are

.. math::
    \text{scaled:} \quad & A = 1 - r \lambda, \; B = -r \beta |w|^2, \; C = -r \alpha, \;
        D = \mu, \; E = |w|^2, \; F = 0 \\
    \text{unit norm:} \quad & A = (n + r (\alpha c_m + \beta c_g)) / N, \; B = -r \beta / N, \;
        C = -r \alpha / N, \; D = \mu, \; E = 1, \; F = -(\mu c_m + c_g) \\
    & n = 1 / |w|, \; c_x = n^2 \langle w, x \rangle, \; N = \text{norm of the numerator}.

N follows from the same inner products: with :math:`d = \alpha m + \beta g` it is
:math:`N^2 = n^2 |w|^2 + r^2 (|d|^2 - (\alpha c_m + \beta c_g)^2 / n^2)`. Where that would cancel, N is one
and the new filter is divided by its norm.

Filters are rows, entries that follow each other in memory, or columns, whose entries lie apart; in the full
metric every entry of the gradient has factors of its row and its column. Every part is compiled into the
kernel :data:`step`, whose tables are those of :mod:`symoptim.kernels.descriptor`.
"""

import math
from typing import NamedTuple

import numpy as np

from symoptim.kernels.descriptor import (
    BUFFER,
    COLUMNS,
    COUNT,
    DECAY,
    GRADIENT,
    GROUP,
    INNER,
    KIND,
    MOMENTUM,
    NEW,
    OLD,
    OUTER,
    PLAIN,
    RATE,
    ROWS,
    SCALED,
    SIGN,
    SQUARED,
    UNIT_NORM,
    WEIGHTS,
)
from symoptim.kernels.numba.jit import SOURCES, array_at, in_order, kernel, narrow, njit

BLOCK = 2048  # entries summed in their own precision; sums of blocks are float64, for long filters
BLOCK_OF_ROWS = 64  # of columns, likewise
SAFE = 0.25  # squared length of a step up to which N does not cancel
SMALL = 1e-30  # squares up to which float32 has few digits left


class Coefficients(NamedTuple):
    """``w = a w + b g + c m`` and ``m = d m + e g + f w``, of what they were."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float
    normalized: bool
    """Whether the new filter has the norm it should have; else it has to be divided by its norm."""


@njit
def coefficients(kind, ww, wg, wm, dd, number, like):
    """Coefficients of a filter from its inner products, by the formulas above.

    Scaled updates need ``ww`` alone, plain ones take 1 for it. ``like`` has the precision of the weights.
    """
    rate, momentum, old, new, sign = number[RATE], number[MOMENTUM], number[OLD], number[NEW], number[SIGN]
    if kind != UNIT_NORM:
        slope = sign * ww
        return Coefficients(
            1 - rate * number[DECAY], -rate * new * slope, -rate * old, momentum, slope, 0.0, True
        )
    norm = math.sqrt(ww)
    inverse = 1.0 if abs(norm - 1) <= 4 * np.finfo(like.dtype).eps else 1 / norm
    along = inverse * inverse * (old * wm + new * sign * wg)
    scale, is_safe = 1.0, rate * rate * dd < SAFE and ww > SMALL
    if is_safe:
        tangent = max(dd - (along / inverse) ** 2, 0.0)
        scale = 1 / math.sqrt(inverse * inverse * ww + rate * rate * tangent)
    a, b, c = scale * (inverse + rate * along), -scale * rate * new * sign, -scale * rate * old
    return Coefficients(a, b, c, momentum, sign, -inverse * inverse * (momentum * wm + sign * wg), is_safe)


# Positions are unsigned: numba would look whether others are counted from the end.
@njit
def square(w, begin, end):
    """Ww of the entries from one position to another."""
    narrow()
    ww = w.dtype.type(0)
    for i in range(np.uintp(begin), np.uintp(end)):
        ww += w[i] * w[i]
    return np.float64(ww)


@njit
def products(w, g, m, begin, end, old, new):
    """ww, wg, wm, and dd of ``d = old m + new g``."""
    narrow()
    old, new = w.dtype.type(old), w.dtype.type(new)
    ww = wg = wm = dd = w.dtype.type(0)
    if m.size:
        for i in range(np.uintp(begin), np.uintp(end)):
            x, y, z = w[i], g[i], m[i]
            d = old * z + new * y
            ww += x * x
            wg += x * y
            wm += x * z
            dd += d * d
    else:
        for i in range(np.uintp(begin), np.uintp(end)):
            x, y = w[i], g[i]
            ww += x * x
            wg += x * y
            dd += y * y
        dd *= new * new
    return np.float64(ww), np.float64(wg), np.float64(wm), np.float64(dd)


@njit
def move(w, g, m, begin, end, by):
    """Step the entries from one position to another."""
    narrow()
    a, b, c = w.dtype.type(by.a), w.dtype.type(by.b), w.dtype.type(by.c)
    d, e, f = w.dtype.type(by.d), w.dtype.type(by.e), w.dtype.type(by.f)
    if m.size == 0:
        for i in range(np.uintp(begin), np.uintp(end)):
            w[i] = a * w[i] + b * g[i]
    elif f == 0:
        for i in range(np.uintp(begin), np.uintp(end)):
            y, z = g[i], m[i]
            m[i] = d * z + e * y
            w[i] = a * w[i] + b * y + c * z
    else:
        for i in range(np.uintp(begin), np.uintp(end)):
            x, y, z = w[i], g[i], m[i]
            m[i] = d * z + e * y + f * x
            w[i] = a * x + b * y + c * z


@njit
def add_gradient(w, g, m, begin, end, momentum, sign):
    """``m = momentum m + sign g``; ww, wm and mm after that."""
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


@njit
def move_by_buffer(w, m, begin, end, a, b, f):
    """``w = a w + b m`` and ``m = m + f w``, of what they were."""
    narrow()
    a, b, f = w.dtype.type(a), w.dtype.type(b), w.dtype.type(f)
    for i in range(np.uintp(begin), np.uintp(end)):
        x, z = w[i], m[i]
        w[i] = a * x + b * z
        m[i] = z + f * x


@njit
def normalize(w, begin, end):
    """Divide a row by its norm."""
    narrow()
    ww = 0.0
    for i in range(np.uintp(begin), np.uintp(end)):
        ww += np.float64(w[i]) * np.float64(w[i])
    scale = w.dtype.type(1 / math.sqrt(ww))
    for i in range(np.uintp(begin), np.uintp(end)):
        w[i] *= scale


# Blocks are counted by hand: a range with a step divides, which makes rows of 32 entries a tenth slower.
@njit
def step_scaled_rows(w, g, m, length, number):
    """Step rows of that length in the scaled metric."""
    for row in range(0, w.size, length):
        end, ww = row + length, 0.0
        begin = stop = row
        while stop < end:
            begin, stop = stop, end if end - stop <= BLOCK else stop + BLOCK
            ww += square(w, begin, stop)
        move(w, g, m, row, end, coefficients(SCALED, ww, 0.0, 0.0, 0.0, number, w))


@njit
def step_unit_rows(w, g, m, length, number):
    """Step rows of that length on the unit sphere."""
    momentum, old, new, sign = number[MOMENTUM], number[OLD], number[NEW], number[SIGN]
    # A row moves along its new buffer, less the part along the row. Without Nesterov's momentum the gradient
    # is therefore added to the buffer first, and the second pass reads two arrays instead of three: otherwise
    # a step of ResNet-50 takes 1.11 times as long, one of a matrix 1.13 (AMD EPYC, Zen 5, November 2026).
    is_added_first = m.size > 0 and old == momentum * new
    for row in range(0, w.size, length):
        end = row + length
        ww = wg = wm = dd = 0.0
        begin = stop = row
        while stop < end:
            begin, stop = stop, end if end - stop <= BLOCK else stop + BLOCK
            if is_added_first:
                one, two, four = add_gradient(w, g, m, begin, stop, momentum, sign)
                ww, wg, dd = ww + one, wg + sign * two, dd + new * new * four
            else:
                one, two, three, four = products(w, g, m, begin, stop, old, new * sign)
                ww, wg, wm, dd = ww + one, wg + two, wm + three, dd + four
        by = coefficients(UNIT_NORM, ww, wg, wm, dd, number, w)
        if is_added_first:
            move_by_buffer(w, m, row, end, by.a, by.b * sign, by.f)
        else:
            move(w, g, m, row, end, by)
        if not by.normalized:
            normalize(w, row, end)


@in_order
def step_row_of_full_metric(w, g, m, row, columns, twice, by):
    """Step a row whose gradient is multiplied by its factor and those of its columns, or by their squares."""
    narrow()
    a, b, c = w.dtype.type(by.a), w.dtype.type(by.b * by.e), w.dtype.type(by.c)
    d, signed = w.dtype.type(by.d), w.dtype.type(by.e) * row
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
def inner_products(x, y, stride, width, inner):
    """Inner products of filters, at each of their ``inner`` places, ``width`` in all."""
    narrow()
    rows = (x.size - width) // stride + 1
    sums, part = np.zeros(width), np.empty(width, x.dtype)
    for block in range(0, rows, BLOCK_OF_ROWS):
        part[:] = 0
        for row in range(block, min(block + BLOCK_OF_ROWS, rows)):
            u, v = x[row * stride : row * stride + width], y[row * stride : row * stride + width]
            for i in range(width):
                part[i] += u[i] * v[i]
        for i in range(width):
            sums[i] += part[i]
    if inner > 1:
        for start in range(0, width, inner):
            sums[start : start + inner] = sums[start : start + inner].sum()
    return sums


@njit
def move_columns(w, g, m, stride, a, b, c, d, e, f):
    """Step filters whose entries lie apart; ``a``, ``b``, ``e`` and ``f`` have a number for each of them."""
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
def step_columns(w, g, m, stride, width, inner, kind, number):
    """Step neighboring filters: pieces of ``width`` entries that lie ``stride`` apart."""
    a, b = np.empty(width, w.dtype), np.empty(width, w.dtype)
    e, f = np.empty(width, w.dtype), np.empty(width, w.dtype)
    ww, zeros = inner_products(w, w, stride, width, inner), np.zeros(width)
    wg = inner_products(w, g, stride, width, inner) if kind == UNIT_NORM else zeros
    wm = inner_products(w, m, stride, width, inner) if kind == UNIT_NORM and m.size else zeros
    for i in range(width):
        # A step of infinite length: these are divided by their norms.
        by = coefficients(kind, ww[i], wg[i], wm[i], np.inf, number, w)
        a[i], b[i], e[i], f[i] = by.a, by.b, by.e, by.f
    c, d = w.dtype.type(by.c), w.dtype.type(by.d)  # the same for all
    move_columns(w, g, m, stride, a, b, c, d, e, f)
    if kind == UNIT_NORM:
        norms = inner_products(w, w, stride, width, inner)
        for i in range(width):
            a[i], b[i] = 1 / math.sqrt(norms[i]), 0
        move_columns(w, w, m[:0], stride, a, b, c, d, e, f)


def _made(sources):
    @kernel
    def step(chunks, table, numbers, like):
        """Step chunks ``(tensor, first, last)``: filters, or entries where the update is plain.

        ``numbers`` has a row per group; ``like`` is an array of the precision of the weights.
        """
        if not sources:
            return
        for k in range(chunks.shape[0]):
            about, first, last = table[chunks[k, 0]], chunks[k, 1], chunks[k, 2]
            outer, count, inner = about[OUTER], about[COUNT], about[INNER]
            kind, number = about[KIND], numbers[about[GROUP]]
            size = outer * count * inner
            w = array_at(about[WEIGHTS], size, like)
            g = array_at(about[GRADIENT], size, like)
            m = array_at(about[BUFFER], size, like)
            here, end = first * inner, size - (count - last) * inner
            if kind == PLAIN and about[COLUMNS] == 0:
                move(w, g, m, first, last, coefficients(kind, 1.0, 0.0, 0.0, 0.0, number, like))
            elif kind == PLAIN:
                by = coefficients(kind, 1.0, 0.0, 0.0, 0.0, number, like)
                rows, columns = array_at(about[ROWS], count, like), array_at(about[COLUMNS], inner, like)
                for row in range(first, last):
                    here, end = row * inner, (row + 1) * inner
                    x, y, z = w[here:end], g[here:end], m[here:end]
                    step_row_of_full_metric(x, y, z, rows[row], columns, about[SQUARED] != 0, by)
            elif outer > 1:
                width = (last - first) * inner
                step_columns(w[here:end], g[here:end], m[here:end], count * inner, width, inner, kind, number)
            elif kind == SCALED:
                step_scaled_rows(w[here:end], g[here:end], m[here:end], inner, number)
            else:
                step_unit_rows(w[here:end], g[here:end], m[here:end], inner, number)

    return step


step = _made(SOURCES)
