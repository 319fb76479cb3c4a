# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - capital letters are known when a kernel is compiled
"""Kernels for tensors whose filters lie in one piece: a program steps a part of one tensor.

1  ``step_short``   rows of up to 2048 entries, several at once in registers; and entries without rows
2  ``step_wide``    one row of up to 8192 entries, in the registers of more threads

Longer rows, and some that would leave too much of a program empty, are read twice (:mod:`.long`).
"""

import triton
import triton.language as tl

from symoptim.kernels.triton.common import (
    COUNT,
    GROUP,
    INNER,
    KIND,
    NUMBERS,
    PLAIN,
    UNIT,
    WIDTH,
    coefficients,
    in_metric,
    inverse_scale,
    length_of,
    load_gradient,
    load_weights,
    pointers,
    store_weights,
)


@triton.jit
def _rows(
    about, first, group, shrink,
    TYPE: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, BUFFERED: tl.constexpr,
    FACTORED: tl.constexpr, SCALED_LOSS: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Step some rows that fit in registers."""
    kind, inner = tl.load(about + KIND), length_of(about, ALIGNED)
    weights, parameter, gradient, buffer = pointers(about, first * inner, TYPE, LOW, ALIGNED)
    count = (tl.load(about + COUNT) - first).to(tl.int32)
    rows, columns = tl.arange(0, HEIGHT)[:, None], tl.arange(0, LENGTH)[None, :]
    mask = (rows < count) & (columns < inner)
    places = rows * inner + columns
    w = load_weights(weights, parameter, places, mask, LOW)
    g = load_gradient(gradient, places, mask, shrink, SCALED_LOSS)
    ww, wg, wb = tl.full((1, 1), 1.0, TYPE), tl.zeros((1, 1), TYPE), tl.zeros((1, 1), TYPE)
    if BUFFERED:
        b = tl.load(buffer + places, mask=mask, other=0.0)
    if FACTORED:  # only steps that know no filters have a metric
        g = in_metric(g, about, first + rows, columns, rows < count, columns < inner, TYPE)
    else:
        ww = tl.sum(w * w, 1, keep_dims=True)
        wg = tl.sum(w * g, 1, keep_dims=True)
        if BUFFERED:
            wb = tl.sum(w * b, 1, keep_dims=True)
    to_w, to_g, to_b, keep, slope, back = coefficients(kind, ww, wg, wb, group, TYPE)
    moved = to_w * w + to_g * g
    if BUFFERED:
        moved += to_b * b
        turned = tl.where(kind == UNIT, back * w, 0.0)
        tl.store(buffer + places, keep * b + slope * g + turned, mask=mask)
    if kind == UNIT:
        moved = moved / tl.sqrt(tl.sum(moved * moved, 1, keep_dims=True))
    store_weights(weights, parameter, places, mask, moved, LOW)


@triton.jit
def _stretch(
    about, first, group, shrink,
    TYPE: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, BUFFERED: tl.constexpr,
    SCALED_LOSS: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Step entries that are no filters."""
    weights, parameter, gradient, buffer = pointers(about, first, TYPE, LOW, ALIGNED)
    places = tl.arange(0, LENGTH)
    left = tl.load(about + INNER) - first
    if ALIGNED:
        left = tl.multiple_of(left, 8)
    mask = places < left
    w = load_weights(weights, parameter, places, mask, LOW)
    g = load_gradient(gradient, places, mask, shrink, SCALED_LOSS)
    one = tl.full((), 1.0, TYPE)
    to_w, to_g, to_b, keep, slope, _ = coefficients(PLAIN, one, one, one, group, TYPE)
    moved = to_w * w + to_g * g
    if BUFFERED:
        b = tl.load(buffer + places, mask=mask, other=0.0)
        moved += to_b * b
        tl.store(buffer + places, keep * b + slope * g, mask=mask)
    store_weights(weights, parameter, places, mask, moved, LOW)


@triton.jit
def step_short(
    table, programs, numbers, grad_scale, found_inf,
    TYPE: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, BUFFERED: tl.constexpr,
    FACTORED: tl.constexpr, SCALED_LOSS: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Every program looks up its tensor, its first row or entry, and the length that its rows fit in."""
    about = table + WIDTH * tl.load(programs + 3 * tl.program_id(0))
    first = tl.load(programs + 3 * tl.program_id(0) + 1)
    length = tl.load(programs + 3 * tl.program_id(0) + 2)
    group = numbers + NUMBERS * tl.load(about + GROUP)
    if SCALED_LOSS and tl.load(found_inf) != 0:
        return
    shrink = inverse_scale(grad_scale, TYPE, SCALED_LOSS)
    for power in tl.static_range(6, 12):  # of two: rows are as wide as is known when this is compiled
        if length == 1 << power:
            _rows(
                about, first, group, shrink, TYPE, LOW, ALIGNED, BUFFERED, FACTORED, SCALED_LOSS,
                LENGTH >> power, 1 << power,
            )  # fmt: skip
    if length == 0:
        _stretch(about, first, group, shrink, TYPE, LOW, ALIGNED, BUFFERED, SCALED_LOSS, LENGTH)


@triton.jit
def step_wide(
    table, programs, numbers, grad_scale, found_inf,
    TYPE: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, BUFFERED: tl.constexpr,
    FACTORED: tl.constexpr, SCALED_LOSS: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Every program looks up its tensor and its row."""
    about = table + WIDTH * tl.load(programs + 3 * tl.program_id(0))
    first = tl.load(programs + 3 * tl.program_id(0) + 1)
    group = numbers + NUMBERS * tl.load(about + GROUP)
    if SCALED_LOSS and tl.load(found_inf) != 0:
        return
    shrink = inverse_scale(grad_scale, TYPE, SCALED_LOSS)
    _rows(about, first, group, shrink, TYPE, LOW, ALIGNED, BUFFERED, FACTORED, SCALED_LOSS, 1, LENGTH)
