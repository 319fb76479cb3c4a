# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - constants of a compiled kernel have names in capital letters
"""Kernels for filters that are split among programs: columns of a matrix, and very long rows.

Both are matrices in memory: a very long row is cut into lines of 128 entries, all of one filter. A program
has 128 neighboring columns and some of the lines; what it sums it writes to ``scratch`` for the others:

    1  ``partial_products``  products of the filter's weights with themselves, the gradient and the momentum
    2  ``step``              adds up the products of all programs, and steps
    3  ``normalize``         filters of unit norm only: adds up the new squared norms, and divides
"""

import triton
import triton.language as tl

from symoptim.kernels.triton import tiling
from symoptim.kernels.triton.common import (
    GROUP,
    HYPERPARAMETERS,
    KIND,
    UNIT_NORM,
    WIDTH,
    coefficients,
    inverse_gradient_scale,
    load_gradient,
    load_weights,
    pointers,
    step_entries,
    store_weights,
)

BLOCK_LINES = tl.constexpr(16)  # that are read at once
BLOCK_SEGMENTS = tl.constexpr(16)  # whose products are read at once
ACROSS = tl.constexpr(tiling.ACROSS)  # columns of a program

TENSOR, BASE, STRIDE, FIRST, LAST, COLUMNS, END, SCRATCH, SEGMENT, SEGMENTS, INNER = map(
    tl.constexpr, range(tiling.SPLIT_FIELDS)
)
"""Of a program: its tensor, offset of its first column, distance of lines, first and last line, how many
columns there are, where the matrix ends; where its products go, which segment of these filters it has, how
many there are, and how many neighboring columns make up a filter."""
FIELDS = tl.constexpr(tiling.SPLIT_FIELDS)
PRODUCTS = tl.constexpr(tiling.PRODUCTS)  # per column: ww, wg, wb, and the new ww


@triton.jit
def _block(program, line):
    """Offsets of some lines, and which of them exist."""
    lines, columns = line + tl.arange(0, BLOCK_LINES)[:, None], tl.arange(0, ACROSS)[None, :]
    offsets = tl.load(program + BASE) + lines * tl.load(program + STRIDE) + columns
    mask = (lines < tl.load(program + LAST)) & (columns < tl.load(program + COLUMNS))
    return offsets, mask & (offsets < tl.load(program + END))


@triton.jit
def _store_product(program, scratch, PRODUCT: tl.constexpr, value):
    start = tl.load(program + SCRATCH) + (tl.load(program + SEGMENT) * PRODUCTS + PRODUCT) * ACROSS
    tl.store(scratch + start + tl.arange(0, ACROSS), value.to(tl.float64))


@triton.jit
def _sum_products(program, scratch, PRODUCT: tl.constexpr, TYPE: tl.constexpr):
    """Sum over all programs, of the filter of each column."""
    inner, segments = tl.load(program + INNER), tl.load(program + SEGMENTS)
    start = scratch + tl.load(program + SCRATCH) + PRODUCT * ACROSS
    columns = tl.arange(0, ACROSS)[None, :]
    total = tl.zeros((ACROSS,), tl.float64)
    for first in range(0, segments, BLOCK_SEGMENTS):
        segment = first + tl.arange(0, BLOCK_SEGMENTS)[:, None]
        products, mask = start + segment * PRODUCTS * ACROSS, segment < segments
        if inner == 1:
            total += tl.sum(tl.load(products + columns, mask=mask, other=0.0), 0)
        elif inner == ACROSS:
            total += tl.sum(tl.load(products + columns, mask=mask, other=0.0))
        else:
            for column in range(0, inner):
                same = columns // inner * inner + column
                total += tl.sum(tl.load(products + same, mask=mask & (same < ACROSS), other=0.0), 0)
    return total.to(TYPE)


@triton.jit
def partial_products(
    table, programs, scratch, grad_scale, found_inf,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, HAS_MOMENTUM: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr,
):  # fmt: skip
    """Products of weights with themselves, gradient and momentum, over the lines of a program."""
    program = programs + FIELDS * tl.program_id(0)
    descriptor = table + WIDTH * tl.load(program + TENSOR)
    kind = tl.load(descriptor + KIND)
    if HAS_GRAD_SCALE and tl.load(found_inf) != 0:
        return
    unscale = inverse_gradient_scale(grad_scale, TYPE, HAS_GRAD_SCALE)
    weights, parameter, gradient, buffer = pointers(descriptor, 0, TYPE, PARAM_TYPE, False)
    ww, wg, wb = tl.zeros((ACROSS,), TYPE), tl.zeros((ACROSS,), TYPE), tl.zeros((ACROSS,), TYPE)
    for line in range(tl.load(program + FIRST), tl.load(program + LAST), BLOCK_LINES):
        offsets, mask = _block(program, line)
        w = load_weights(weights, parameter, offsets, mask, PARAM_TYPE)
        ww += tl.sum(w * w, 0)
        if kind == UNIT_NORM:
            wg += tl.sum(w * load_gradient(gradient, offsets, mask, unscale, HAS_GRAD_SCALE), 0)
            if HAS_MOMENTUM:
                wb += tl.sum(w * tl.load(buffer + offsets, mask=mask, other=0.0), 0)
    _store_product(program, scratch, 0, ww)
    _store_product(program, scratch, 1, wg)
    _store_product(program, scratch, 2, wb)


@triton.jit
def step(
    table, programs, numbers, scratch, grad_scale, found_inf,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, HAS_MOMENTUM: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr,
):  # fmt: skip
    """Step, with the products of all programs."""
    program = programs + FIELDS * tl.program_id(0)
    descriptor = table + WIDTH * tl.load(program + TENSOR)
    kind = tl.load(descriptor + KIND)
    group = numbers + HYPERPARAMETERS * tl.load(descriptor + GROUP)
    if HAS_GRAD_SCALE and tl.load(found_inf) != 0:
        return
    unscale = inverse_gradient_scale(grad_scale, TYPE, HAS_GRAD_SCALE)
    weights, parameter, gradient, buffer = pointers(descriptor, 0, TYPE, PARAM_TYPE, False)
    ww = _sum_products(program, scratch, 0, TYPE)
    wg, wb = tl.zeros((ACROSS,), TYPE), tl.zeros((ACROSS,), TYPE)
    if kind == UNIT_NORM:
        wg = _sum_products(program, scratch, 1, TYPE)
        if HAS_MOMENTUM:
            wb = _sum_products(program, scratch, 2, TYPE)
    w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, b_from_w = coefficients(
        kind, ww, wg, wb, group, TYPE, HAS_MOMENTUM
    )
    new_ww = tl.zeros((ACROSS,), TYPE)
    for line in range(tl.load(program + FIRST), tl.load(program + LAST), BLOCK_LINES):
        offsets, mask = _block(program, line)
        w = load_weights(weights, parameter, offsets, mask, PARAM_TYPE)
        g = load_gradient(gradient, offsets, mask, unscale, HAS_GRAD_SCALE)
        w_new = step_entries(
            w, g, None, buffer, offsets, mask, kind, w_from_w[None, :], w_from_g[None, :], w_from_b,
            b_from_b, b_from_g[None, :], b_from_w[None, :], HAS_MOMENTUM,
        )  # fmt: skip
        new_ww += tl.sum(tl.where(mask, w_new * w_new, 0.0), 0)
        store_weights(weights, parameter, offsets, mask, w_new, PARAM_TYPE)
    _store_product(program, scratch, 3, new_ww)


@triton.jit
def normalize(
    table, programs, scratch, found_inf,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr,
):  # fmt: skip
    """Bring filters to unit norm."""
    program = programs + FIELDS * tl.program_id(0)
    descriptor = table + WIDTH * tl.load(program + TENSOR)
    if HAS_GRAD_SCALE and tl.load(found_inf) != 0:
        return
    weights, parameter, _, _ = pointers(descriptor, 0, TYPE, PARAM_TYPE, False)
    if tl.load(descriptor + KIND) == UNIT_NORM:
        norm = tl.sqrt(_sum_products(program, scratch, 3, TYPE))
        for line in range(tl.load(program + FIRST), tl.load(program + LAST), BLOCK_LINES):
            offsets, mask = _block(program, line)
            w = tl.load(weights + offsets, mask=mask, other=0.0)
            store_weights(weights, parameter, offsets, mask, w / norm[None, :], PARAM_TYPE)
