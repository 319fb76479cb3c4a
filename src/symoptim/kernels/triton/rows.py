# pyright: basic, reportMissingImports=false
# ruff: noqa: N803, N806 - constants of a compiled kernel have names in capital letters
"""Kernels for contiguous rows that belong to one program each, and for entries that are no filters.

1  ``step_rows``       rows that fit in registers: several of up to 2048 entries, or one of up to 8192
2  ``step_long_rows``  a longer row, or one that would leave too much of a program empty. It is read a second
                       time, from the cache. On an H200 that has 60 MB, which is most of what running programs
                       have read: the longer rows are, the fewer of them run (:func:`.tiling.row_tiling`).

A program has ``(tensor, first row or entry, length that its rows fit in, or 0 where there are no rows)``.
"""

import triton
import triton.language as tl

from symoptim.kernels.triton import tiling
from symoptim.kernels.triton.common import (
    COUNT,
    GROUP,
    HYPERPARAMETERS,
    INNER,
    KIND,
    NEW,
    NORMAL,
    OLD,
    PLAIN,
    SIGN,
    UNIT_NORM,
    WIDTH,
    coefficients,
    in_metric,
    inverse_gradient_scale,
    load_gradient,
    load_weights,
    norm_after_step,
    number,
    pointers,
    row_length,
    step_entries,
    store_weights,
)

SHORT = tl.constexpr(tiling.SHORT[-1])
EVICT_LAST, EVICT_FIRST = tl.constexpr("evict_last"), tl.constexpr("evict_first")


@triton.jit
def _step_some_rows(
    descriptor, first, group, unscale,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, ALIGNED: tl.constexpr, HAS_MOMENTUM: tl.constexpr,
    HAS_METRIC: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Step some rows that fit in registers."""
    kind, inner = tl.load(descriptor + KIND), row_length(descriptor, ALIGNED)
    weights, parameter, gradient, buffer = pointers(descriptor, first * inner, TYPE, PARAM_TYPE, ALIGNED)
    count = (tl.load(descriptor + COUNT) - first).to(tl.int32)
    rows, columns = tl.arange(0, HEIGHT)[:, None], tl.arange(0, LENGTH)[None, :]
    mask = (rows < count) & (columns < inner)
    offsets = rows * inner + columns
    w = load_weights(weights, parameter, offsets, mask, PARAM_TYPE)
    g = load_gradient(gradient, offsets, mask, unscale, HAS_GRAD_SCALE)
    b = None
    if HAS_MOMENTUM:
        b = tl.load(buffer + offsets, mask=mask, other=0.0)
    ww, wg, wb = tl.full((1, 1), 1.0, TYPE), tl.zeros((1, 1), TYPE), tl.zeros((1, 1), TYPE)
    if HAS_METRIC:  # only steps that know no filters have a metric
        g = in_metric(g, descriptor, first + rows, columns, rows < count, columns < inner, TYPE)
    else:
        ww = tl.sum(w * w, 1, keep_dims=True)
        wg = tl.sum(w * g, 1, keep_dims=True)
        if HAS_MOMENTUM:
            wb = tl.sum(w * b, 1, keep_dims=True)
    w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, b_from_w = coefficients(
        kind, ww, wg, wb, group, TYPE, HAS_MOMENTUM
    )
    w_new = step_entries(
        w, g, b, buffer, offsets, mask, kind,
        w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, b_from_w, HAS_MOMENTUM,
    )  # fmt: skip
    if kind == UNIT_NORM:
        w_new = w_new / tl.sqrt(tl.sum(w_new * w_new, 1, keep_dims=True))
    store_weights(weights, parameter, offsets, mask, w_new, PARAM_TYPE)


@triton.jit
def _step_plain(
    descriptor, first, group, unscale,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, ALIGNED: tl.constexpr, HAS_MOMENTUM: tl.constexpr,
    HAS_GRAD_SCALE: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Step entries that are no filters."""
    weights, parameter, gradient, buffer = pointers(descriptor, first, TYPE, PARAM_TYPE, ALIGNED)
    offsets = tl.arange(0, LENGTH)
    count = tl.load(descriptor + INNER) - first
    if ALIGNED:
        count = tl.multiple_of(count, 8)
    mask = offsets < count
    w = load_weights(weights, parameter, offsets, mask, PARAM_TYPE)
    g = load_gradient(gradient, offsets, mask, unscale, HAS_GRAD_SCALE)
    one = tl.full((), 1.0, TYPE)
    w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, _ = coefficients(
        PLAIN, one, one, one, group, TYPE, HAS_MOMENTUM
    )
    w_new = step_entries(
        w, g, None, buffer, offsets, mask, PLAIN,
        w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, None, HAS_MOMENTUM,
    )  # fmt: skip
    store_weights(weights, parameter, offsets, mask, w_new, PARAM_TYPE)


@triton.jit
def step_rows(
    table, programs, numbers, grad_scale, found_inf,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, ALIGNED: tl.constexpr, HAS_MOMENTUM: tl.constexpr,
    HAS_METRIC: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Step rows that fit in registers, or ``LENGTH`` entries that are no filters."""
    program = programs + 3 * tl.program_id(0)
    descriptor, first = table + WIDTH * tl.load(program), tl.load(program + 1)
    group = numbers + HYPERPARAMETERS * tl.load(descriptor + GROUP)
    if HAS_GRAD_SCALE and tl.load(found_inf) != 0:
        return
    unscale = inverse_gradient_scale(grad_scale, TYPE, HAS_GRAD_SCALE)
    if LENGTH > SHORT:
        _step_some_rows(
            descriptor, first, group, unscale, TYPE, PARAM_TYPE, ALIGNED, HAS_MOMENTUM, HAS_METRIC,
            HAS_GRAD_SCALE, 1, LENGTH,
        )  # fmt: skip
    else:
        length = tl.load(program + 2)
        for power in tl.static_range(6, 12):  # of two: a length that is known when this is compiled
            if length == 1 << power:
                _step_some_rows(
                    descriptor, first, group, unscale, TYPE, PARAM_TYPE, ALIGNED, HAS_MOMENTUM, HAS_METRIC,
                    HAS_GRAD_SCALE, LENGTH >> power, 1 << power,
                )  # fmt: skip
        if length == 0:
            _step_plain(
                descriptor, first, group, unscale, TYPE, PARAM_TYPE, ALIGNED, HAS_MOMENTUM, HAS_GRAD_SCALE,
                LENGTH,
            )  # fmt: skip


@triton.jit
def _products(
    weights, parameter, gradient, buffer, kind, inner, old, new, unscale,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, HAS_MOMENTUM: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr,
    LENGTH: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """Products of a row with itself, gradient and momentum, as far as they are needed; its step's square."""
    ww, wg = tl.zeros((LENGTH,), TYPE), tl.zeros((LENGTH,), TYPE)
    wb, ss = tl.zeros((LENGTH,), TYPE), tl.zeros((LENGTH,), TYPE)
    if kind != PLAIN:
        for block in range(0, inner, LENGTH):
            offsets = block + tl.arange(0, LENGTH)
            mask = offsets < inner
            w = load_weights(weights, parameter, offsets, mask, PARAM_TYPE, EVICTION)
            ww += w * w
            if kind == UNIT_NORM:
                g = load_gradient(gradient, offsets, mask, unscale, HAS_GRAD_SCALE, EVICTION)
                wg += w * g
                step = new * g
                if HAS_MOMENTUM:
                    b = tl.load(buffer + offsets, mask=mask, other=0.0, eviction_policy=EVICTION)
                    wb += w * b
                    step += old * b
                ss += step * step
    return tl.sum(ww, 0), tl.sum(wg, 0), tl.sum(wb, 0), tl.sum(ss, 0)


@triton.jit
def step_long_rows(
    table, programs, numbers, grad_scale, found_inf,
    TYPE: tl.constexpr, PARAM_TYPE: tl.constexpr, ALIGNED: tl.constexpr, HAS_MOMENTUM: tl.constexpr,
    HAS_METRIC: tl.constexpr, HAS_GRAD_SCALE: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Step one row, in blocks of ``LENGTH`` entries."""
    program = programs + 3 * tl.program_id(0)
    descriptor, first = table + WIDTH * tl.load(program), tl.load(program + 1)
    group = numbers + HYPERPARAMETERS * tl.load(descriptor + GROUP)
    if HAS_GRAD_SCALE and tl.load(found_inf) != 0:
        return
    # Of two arrays a cache keeps what it should without a policy, which then costs a tenth.
    MANY: tl.constexpr = HAS_MOMENTUM or PARAM_TYPE is not None
    EVICTION: tl.constexpr = EVICT_FIRST if MANY else NORMAL
    unscale = inverse_gradient_scale(grad_scale, TYPE, HAS_GRAD_SCALE)
    kind, inner = tl.load(descriptor + KIND), row_length(descriptor, ALIGNED)
    weights, parameter, gradient, buffer = pointers(descriptor, first * inner, TYPE, PARAM_TYPE, ALIGNED)
    old, new = number(group, OLD, TYPE), number(group, NEW, TYPE) * number(group, SIGN, TYPE)
    ww, wg, wb, ss = _products(
        weights, parameter, gradient, buffer, kind, inner, old, new, unscale,
        TYPE, PARAM_TYPE, HAS_MOMENTUM, HAS_GRAD_SCALE, LENGTH, EVICT_LAST if MANY else NORMAL,
    )  # fmt: skip
    w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, b_from_w = coefficients(
        kind, ww, wg, wb, group, TYPE, HAS_MOMENTUM
    )
    norm, is_safe = norm_after_step(ww, wg, wb, ss, group, TYPE)
    if (kind == UNIT_NORM) & is_safe:
        w_from_w, w_from_g, w_from_b = w_from_w / norm, w_from_g / norm, w_from_b / norm
    new_ww = tl.zeros((LENGTH,), TYPE)
    for block in range(0, inner, LENGTH):
        offsets = block + tl.arange(0, LENGTH)
        mask = offsets < inner
        w = load_weights(weights, parameter, offsets, mask, PARAM_TYPE, EVICTION)
        g = load_gradient(gradient, offsets, mask, unscale, HAS_GRAD_SCALE, EVICTION)
        if HAS_METRIC:
            g = in_metric(g, descriptor, first, offsets, True, mask, TYPE)
        w_new = step_entries(
            w, g, None, buffer, offsets, mask, kind,
            w_from_w, w_from_g, w_from_b, b_from_b, b_from_g, b_from_w, HAS_MOMENTUM, EVICTION,
        )  # fmt: skip
        new_ww += w_new * w_new
        store_weights(weights, parameter, offsets, mask, w_new, PARAM_TYPE, EVICTION)
    if (kind == UNIT_NORM) & (is_safe == 0):
        norm = tl.sqrt(tl.sum(new_ww, 0))
        for block in range(0, inner, LENGTH):
            offsets = block + tl.arange(0, LENGTH)
            mask = offsets < inner
            w = tl.load(weights + offsets, mask=mask, other=0.0)
            store_weights(weights, parameter, offsets, mask, w / norm, PARAM_TYPE)
