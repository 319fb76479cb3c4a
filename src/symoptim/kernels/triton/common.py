# pyright: basic, reportMissingImports=false
# ruff: noqa: N803, N806 - capital letters are known when a kernel is compiled
r"""What the kernels share: addresses, weights with their master copies, and the numbers of a filter.

Every update is, with numbers that hold for a whole filter (:mod:`symoptim.kernels.numba.filters`),

.. math:: w' = A w + B g + C b, \qquad b' = D b + E g + F w ,

divided by its norm if the filter is to be of unit norm.

Triton has no types. Capital letters are known when a kernel is compiled.
"""

import triton
import triton.language as tl

from symoptim.kernels import numbers, table

# Kernels see only names that are known when they are compiled.
WEIGHTS, GRADIENT, BUFFER = (tl.constexpr(c) for c in (table.WEIGHTS, table.GRADIENT, table.BUFFER))
ROWS, COLUMNS, PARAMETER = (tl.constexpr(c) for c in (table.ROWS, table.COLUMNS, table.PARAMETER))
OUTER, COUNT, INNER = (tl.constexpr(c) for c in (table.OUTER, table.COUNT, table.INNER))
KIND, GROUP, TWICE = (tl.constexpr(c) for c in (table.KIND, table.GROUP, table.TWICE))
NORMAL = tl.constexpr("")  # of what a cache is told
WIDTH, NUMBERS = tl.constexpr(table.WIDTH), tl.constexpr(numbers.COLUMNS)
PLAIN, SCALED, UNIT = (tl.constexpr(c) for c in (table.PLAIN, table.SCALED, table.UNIT))
RATE, MOMENTUM, OLD = (tl.constexpr(c) for c in (numbers.RATE, numbers.MOMENTUM, numbers.OLD))
NEW, DECAY, SIGN = (tl.constexpr(c) for c in (numbers.NEW, numbers.DECAY, numbers.SIGN))


@triton.jit
def _pointer(about, WHICH: tl.constexpr, offset, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    # Where a multiple of 16 bytes is promised, entries are moved 16 bytes at a time.
    pointer = tl.load(about + WHICH).to(tl.pointer_type(TYPE)) + offset
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def pointers(about, offset, TYPE: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers to weights, parameter, gradient and momentum, from an entry on.

    They are looked up once: in a loop that writes, a compiler cannot know that the table stays as it is.
    """
    GIVEN: tl.constexpr = TYPE if LOW is None else LOW
    weights = _pointer(about, WEIGHTS, offset, TYPE, ALIGNED)
    parameter = _pointer(about, PARAMETER, offset, GIVEN, ALIGNED)
    gradient = _pointer(about, GRADIENT, offset, GIVEN, ALIGNED)
    return weights, parameter, gradient, _pointer(about, BUFFER, offset, TYPE, ALIGNED)


@triton.jit
def length_of(about, ALIGNED: tl.constexpr):
    """Entries of a row that lies in one piece, a multiple of eight if that was promised."""
    # Counted from the start of a row, 32 bits are enough, and addresses take fewer registers.
    inner = tl.load(about + INNER).to(tl.int32)
    return tl.multiple_of(inner, 8) if ALIGNED else inner


@triton.jit
def load_weights(weights, parameter, places, mask, LOW: tl.constexpr, CACHE: tl.constexpr = NORMAL):
    """Weights; where a parameter is no longer the rounding of its master copy, the parameter wins."""
    found = tl.load(weights + places, mask=mask, other=0.0, eviction_policy=CACHE)
    if LOW is not None:
        used = tl.load(parameter + places, mask=mask, other=0.0, eviction_policy=CACHE)
        found = tl.where(used == found.to(LOW), found, used.to(found.dtype))
    return found


@triton.jit
def store_weights(weights, parameter, places, mask, values, LOW: tl.constexpr, CACHE: tl.constexpr = NORMAL):
    """Weights, and the parameter that they are the master copy of."""
    tl.store(weights + places, values, mask=mask, eviction_policy=CACHE)
    if LOW is not None:
        tl.store(parameter + places, values.to(LOW), mask=mask, eviction_policy=CACHE)


@triton.jit
def inverse_scale(grad_scale, TYPE: tl.constexpr, SCALED_LOSS: tl.constexpr):
    """What gradients are multiplied by: one over what the loss was."""
    shrink = tl.full((), 1.0, TYPE)
    if SCALED_LOSS:
        shrink = (1 / tl.load(grad_scale)).to(TYPE)
    return shrink


@triton.jit
def load_gradient(gradient, places, mask, shrink, SCALED_LOSS: tl.constexpr, CACHE: tl.constexpr = NORMAL):
    """Gradient in the precision of updates, divided by what the loss was multiplied by."""
    found = tl.load(gradient + places, mask=mask, other=0.0, eviction_policy=CACHE).to(shrink.dtype)
    if SCALED_LOSS:
        found = found * shrink
    return found


@triton.jit
def number(group, WHICH: tl.constexpr, TYPE: tl.constexpr):
    """One of the numbers of a group."""
    return tl.load(group + WHICH).to(TYPE)


@triton.jit
def inverse_norm(ww, TYPE: tl.constexpr):
    """One over the norm, or one where the norm is that to within four rounding steps."""
    EPSILON: tl.constexpr = 2.220446049250313e-16 if tl.float64 == TYPE else 1.1920928955078125e-07
    norm = tl.sqrt(ww)
    return tl.where(tl.abs(norm - 1) <= 4 * EPSILON, 1.0, 1 / norm).to(TYPE)


@triton.jit
def coefficients(kind, ww, wg, wb, group, TYPE: tl.constexpr):
    """A to F of filters, of their squared norms and their products with gradient and momentum."""
    rate, sign = number(group, RATE, TYPE), number(group, SIGN, TYPE)
    old, new, momentum = number(group, OLD, TYPE), number(group, NEW, TYPE), number(group, MOMENTUM, TYPE)
    a = inverse_norm(ww, TYPE)
    turned = a + rate * a * a * (old * wb + new * sign * wg)
    straight = 1 - rate * number(group, DECAY, TYPE)
    to_weights = tl.where(kind == UNIT, turned, straight)
    slope = tl.where(kind == SCALED, ww, 1.0).to(TYPE) * sign
    back = -a * a * (momentum * wb + sign * wg)
    return to_weights, -rate * new * slope, -rate * old, momentum, slope, back


@triton.jit
def in_metric(g, about, rows, columns, row_mask, column_mask, TYPE: tl.constexpr):
    """Gradient times the factors of its rows and columns, or their squares."""
    if tl.load(about + COLUMNS) != 0:
        by_row = tl.load(tl.load(about + ROWS).to(tl.pointer_type(TYPE)) + rows, mask=row_mask, other=0.0)
        by_column = tl.load(
            tl.load(about + COLUMNS).to(tl.pointer_type(TYPE)) + columns, mask=column_mask, other=0.0
        )
        g = g * by_row * by_column
        if tl.load(about + TWICE) != 0:
            g = g * by_row * by_column
    return g
