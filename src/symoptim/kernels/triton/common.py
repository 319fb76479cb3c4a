# pyright: basic, reportMissingImports=false
# ruff: noqa: N803, N806 - constants of a compiled kernel have names in capital letters
r"""What the kernels that step share: addresses, weights with their master copies, the coefficients of a step.

Every update is, with coefficients that hold for a whole filter (:mod:`symoptim.kernels.numba.step`),

.. math:: w' = A w + B g + C b, \qquad b' = D b + E g + F w ,

where :math:`w'` is divided by its norm if the filter is to be of unit norm. In the code A to F are
``w_from_w``, ``w_from_g``, ``w_from_b``, ``b_from_b``, ``b_from_g`` and ``b_from_w``.

Triton has no types; what is in capital letters is known when a kernel is compiled:

    TYPE            type of the weights, and of all arithmetic
    PARAM_TYPE      type of the parameters that the weights are master copies of; None if they are the same
    ALIGNED         all addresses are multiples of 16 bytes and all rows of eight entries
    HAS_MOMENTUM    there are momentum buffers
    HAS_METRIC      some gradients are multiplied by factors of rows and columns
    HAS_GRAD_SCALE  the loss was multiplied by a scale

A ``descriptor`` points to the row of a tensor in the table of :mod:`symoptim.kernels.descriptor`.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from symoptim.kernels import descriptor

TYPES: dict[torch.dtype, Any] = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}

# Kernels see only names that are known when they are compiled.
WEIGHTS, GRADIENT, BUFFER = (
    tl.constexpr(c) for c in (descriptor.WEIGHTS, descriptor.GRADIENT, descriptor.BUFFER)
)
ROWS, COLUMNS, PARAMETER = (
    tl.constexpr(c) for c in (descriptor.ROWS, descriptor.COLUMNS, descriptor.PARAMETER)
)
COUNT, INNER = tl.constexpr(descriptor.COUNT), tl.constexpr(descriptor.INNER)
KIND, GROUP, SQUARED = (tl.constexpr(c) for c in (descriptor.KIND, descriptor.GROUP, descriptor.SQUARED))
WIDTH, HYPERPARAMETERS = tl.constexpr(descriptor.WIDTH), tl.constexpr(descriptor.HYPERPARAMETERS)
PLAIN, SCALED, UNIT_NORM = (
    tl.constexpr(c) for c in (descriptor.PLAIN, descriptor.SCALED, descriptor.UNIT_NORM)
)
RATE, MOMENTUM, OLD = (tl.constexpr(c) for c in (descriptor.RATE, descriptor.MOMENTUM, descriptor.OLD))
NEW, DECAY, SIGN = (tl.constexpr(c) for c in (descriptor.NEW, descriptor.DECAY, descriptor.SIGN))
NORMAL = tl.constexpr("")  # eviction policy of a cache
SAFE = tl.constexpr(0.25)  # squared length of a step up to which the new norm follows from sums
SMALL = tl.constexpr(1e-30)  # squares up to which float32 has few digits left


@triton.jit
def _pointer(descriptor, COLUMN: tl.constexpr, offset, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    # Where a multiple of 16 bytes is promised, entries are moved 16 bytes at a time.
    pointer = tl.load(descriptor + COLUMN).to(tl.pointer_type(TYPE)) + offset
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def pointers(descriptor, offset, TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers to weights, parameter, gradient and momentum, from an entry on.

    They are looked up once: in a loop that writes, a compiler cannot know that the table stays as it is.
    """
    GIVEN: tl.constexpr = TYPE if PARAM_TYPE is None else PARAM_TYPE
    weights = _pointer(descriptor, WEIGHTS, offset, TYPE, ALIGNED)
    parameter = _pointer(descriptor, PARAMETER, offset, GIVEN, ALIGNED)
    gradient = _pointer(descriptor, GRADIENT, offset, GIVEN, ALIGNED)
    return weights, parameter, gradient, _pointer(descriptor, BUFFER, offset, TYPE, ALIGNED)


@triton.jit
def row_length(descriptor, ALIGNED: tl.constexpr):
    """Entries of a contiguous row, a multiple of eight if that was promised."""
    # Counted from the start of a row, 32 bits are enough, and addresses take fewer registers.
    inner = tl.load(descriptor + INNER).to(tl.int32)
    return tl.multiple_of(inner, 8) if ALIGNED else inner


@triton.jit
def load_weights(
    weights, parameter, offsets, mask, PARAM_TYPE: tl.constexpr, EVICTION: tl.constexpr = NORMAL
):
    """Weights; where a parameter is no longer the rounding of its master copy, the parameter wins."""
    w = tl.load(weights + offsets, mask=mask, other=0.0, eviction_policy=EVICTION)
    if PARAM_TYPE is not None:
        rounded = tl.load(parameter + offsets, mask=mask, other=0.0, eviction_policy=EVICTION)
        w = tl.where(rounded == w.to(PARAM_TYPE), w, rounded.to(w.dtype))
    return w


@triton.jit
def store_weights(
    weights, parameter, offsets, mask, w, PARAM_TYPE: tl.constexpr, EVICTION: tl.constexpr = NORMAL
):
    """Weights, and the parameter that they are the master copy of."""
    tl.store(weights + offsets, w, mask=mask, eviction_policy=EVICTION)
    if PARAM_TYPE is not None:
        tl.store(parameter + offsets, w.to(PARAM_TYPE), mask=mask, eviction_policy=EVICTION)


@triton.jit
def inverse_gradient_scale(grad_scale, TYPE: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr):
    """One over the scale of the loss."""
    inverse = tl.full((), 1.0, TYPE)
    if HAS_GRAD_SCALE:
        inverse = (1 / tl.load(grad_scale)).to(TYPE)
    return inverse


@triton.jit
def load_gradient(
    gradient, offsets, mask, unscale, HAS_GRAD_SCALE: tl.constexpr, EVICTION: tl.constexpr = NORMAL
):
    """Gradient in the type of ``unscale``, which it is multiplied by."""
    g = tl.load(gradient + offsets, mask=mask, other=0.0, eviction_policy=EVICTION).to(unscale.dtype)
    if HAS_GRAD_SCALE:
        g = g * unscale
    return g


@triton.jit
def number(group, COLUMN: tl.constexpr, TYPE: tl.constexpr):
    """One of the numbers of a group."""
    return tl.load(group + COLUMN).to(TYPE)


@triton.jit
def inverse_norm(ww, TYPE: tl.constexpr):
    """One over the norm, or one where the norm is that to within four rounding steps."""
    EPSILON: tl.constexpr = 2.220446049250313e-16 if tl.float64 == TYPE else 1.1920928955078125e-07
    norm = tl.sqrt(ww)
    return tl.where(tl.abs(norm - 1) <= 4 * EPSILON, 1.0, 1 / norm).to(TYPE)


@triton.jit
def coefficients(kind, ww, wg, wb, group, TYPE: tl.constexpr, HAS_MOMENTUM: tl.constexpr):
    """A to F of filters, from their squared norms and their products with gradient and momentum."""
    rate, sign = number(group, RATE, TYPE), number(group, SIGN, TYPE)
    old, new, momentum = number(group, OLD, TYPE), number(group, NEW, TYPE), number(group, MOMENTUM, TYPE)
    a = inverse_norm(ww, TYPE)
    if HAS_MOMENTUM:
        along_step, along_buffer = old * wb + new * sign * wg, momentum * wb + sign * wg
    else:
        along_step, along_buffer = new * sign * wg, sign * wg
    unit, straight = a + rate * a * a * along_step, 1 - rate * number(group, DECAY, TYPE)
    w_from_w = tl.where(kind == UNIT_NORM, unit, straight)
    b_from_g = tl.where(kind == SCALED, ww, 1.0).to(TYPE) * sign
    b_from_w = -a * a * along_buffer
    return w_from_w, -rate * new * b_from_g, -rate * old, momentum, b_from_g, b_from_w


@triton.jit
def norm_after_step(ww, wg, wb, ss, group, TYPE: tl.constexpr):
    """Norm that a row is divided by, from sums (``ss`` is the step's square), and whether they are enough."""
    rate, sign = number(group, RATE, TYPE), number(group, SIGN, TYPE)
    old, new = number(group, OLD, TYPE), number(group, NEW, TYPE) * sign
    a = inverse_norm(ww, TYPE)
    along = a * (old * wb + new * wg)
    is_safe = (rate * rate * ss < SAFE) & (ww > SMALL)
    return tl.sqrt(a * a * ww + rate * rate * tl.maximum(ss - along * along, 0.0)), is_safe


@triton.jit
def step_entries(
    w, g, b, buffer, offsets, mask, kind,
    w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, b_from_w,
    HAS_MOMENTUM: tl.constexpr, EVICTION: tl.constexpr = NORMAL,
):  # fmt: skip
    """New weights, not yet divided by their norm; new momentum is stored.

    ``b`` is None where momentum has not been loaded, ``b_from_w`` where entries are no filters.
    """
    w_new = w_from_w * w + w_from_g * g
    if HAS_MOMENTUM:
        if b is None:
            b = tl.load(buffer + offsets, mask=mask, other=0.0, eviction_policy=EVICTION)
        w_new += w_from_b * b
        b_new = b_from_b * b + b_from_g * g
        if b_from_w is not None:
            b_new += tl.where(kind == UNIT_NORM, b_from_w * w, 0.0)
        tl.store(buffer + offsets, b_new, mask=mask, eviction_policy=EVICTION)
    return w_new


@triton.jit
def in_metric(g, descriptor, rows, columns, row_mask, column_mask, TYPE: tl.constexpr):
    """Gradient times the factors of its rows and columns, or their squares."""
    if tl.load(descriptor + COLUMNS) != 0:
        row_factors = tl.load(descriptor + ROWS).to(tl.pointer_type(TYPE))
        column_factors = tl.load(descriptor + COLUMNS).to(tl.pointer_type(TYPE))
        by_row = tl.load(row_factors + rows, mask=row_mask, other=0.0)
        by_column = tl.load(column_factors + columns, mask=column_mask, other=0.0)
        g = g * by_row * by_column
        if tl.load(descriptor + SQUARED) != 0:
            g = g * by_row * by_column
    return g
