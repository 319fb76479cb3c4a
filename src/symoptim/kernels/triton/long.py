# pyright: basic, reportMissingImports=false
# ruff: noqa: N803, N806 - capital letters are known when a kernel is compiled
"""The kernel for long rows: a program steps one, and reads it a second time, from the cache.

On an H200 that cache has 60 MB, which is most of what the programs at work have read: the longer rows are,
the fewer of them there are (:func:`.tiling.kind_of`).
"""

import triton
import triton.language as tl

from symoptim.kernels.triton.common import (
    GROUP,
    KIND,
    NEW,
    NORMAL,
    NUMBERS,
    OLD,
    PLAIN,
    RATE,
    SIGN,
    UNIT,
    WIDTH,
    coefficients,
    in_metric,
    inverse_norm,
    inverse_scale,
    length_of,
    load_gradient,
    load_weights,
    number,
    pointers,
    store_weights,
)

SAFE = tl.constexpr(0.25)  # squared length of a step up to which the new norm follows from sums
KEEP, FREE = tl.constexpr("evict_last"), tl.constexpr("evict_first")  # what a cache is told
SMALL = tl.constexpr(1e-30)  # squares up to which float32 has few digits left


@triton.jit
def _products(
    weights, parameter, gradient, buffer, kind, inner, old, new, shrink,
    TYPE: tl.constexpr, LOW: tl.constexpr, BUFFERED: tl.constexpr, SCALED_LOSS: tl.constexpr,
    LENGTH: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """Of a long row with itself, gradient and momentum, as far as they are needed; and of its step."""
    ww, wg = tl.zeros((LENGTH,), TYPE), tl.zeros((LENGTH,), TYPE)
    wb, ss = tl.zeros((LENGTH,), TYPE), tl.zeros((LENGTH,), TYPE)
    if kind != PLAIN:
        for block in range(0, inner, LENGTH):
            places = block + tl.arange(0, LENGTH)
            mask = places < inner
            w = load_weights(weights, parameter, places, mask, LOW, CACHE)
            ww += w * w
            if kind == UNIT:
                g = load_gradient(gradient, places, mask, shrink, SCALED_LOSS, CACHE)
                wg += w * g
                step = new * g
                if BUFFERED:
                    b = tl.load(buffer + places, mask=mask, other=0.0, eviction_policy=CACHE)
                    wb += w * b
                    step += old * b
                ss += step * step
    return tl.sum(ww, 0), tl.sum(wg, 0), tl.sum(wb, 0), tl.sum(ss, 0)


@triton.jit
def step_long(
    table, programs, numbers, grad_scale, found_inf,
    TYPE: tl.constexpr, LOW: tl.constexpr, ALIGNED: tl.constexpr, BUFFERED: tl.constexpr,
    FACTORED: tl.constexpr, SCALED_LOSS: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Every program looks up its tensor and its row, and passes over it in blocks."""
    about = table + WIDTH * tl.load(programs + 3 * tl.program_id(0))
    first = tl.load(programs + 3 * tl.program_id(0) + 1)
    group = numbers + NUMBERS * tl.load(about + GROUP)
    if SCALED_LOSS and tl.load(found_inf) != 0:
        return
    # Of two arrays a cache keeps what it should without being told; to tell it then costs a tenth.
    MANY: tl.constexpr = BUFFERED or LOW is not None
    CACHE: tl.constexpr = FREE if MANY else NORMAL
    shrink = inverse_scale(grad_scale, TYPE, SCALED_LOSS)
    kind, inner = tl.load(about + KIND), length_of(about, ALIGNED)
    weights, parameter, gradient, buffer = pointers(about, first * inner, TYPE, LOW, ALIGNED)
    rate, sign = number(group, RATE, TYPE), number(group, SIGN, TYPE)
    old, new = number(group, OLD, TYPE), number(group, NEW, TYPE) * sign
    square, along_g, along_b, length = _products(
        weights, parameter, gradient, buffer, kind, inner, old, new, shrink,
        TYPE, LOW, BUFFERED, SCALED_LOSS, LENGTH, KEEP if MANY else NORMAL,
    )  # fmt: skip
    to_w, to_g, to_b, keep, slope, back = coefficients(kind, square, along_g, along_b, group, TYPE)
    a = inverse_norm(square, TYPE)
    along = a * (old * along_b + new * along_g)
    is_safe = (rate * rate * length < SAFE) & (square > SMALL)
    if (kind == UNIT) & is_safe:
        norm = tl.sqrt(a * a * square + rate * rate * tl.maximum(length - along * along, 0.0))
        to_w, to_g, to_b = to_w / norm, to_g / norm, to_b / norm
    tt = tl.zeros((LENGTH,), TYPE)
    for block in range(0, inner, LENGTH):
        places = block + tl.arange(0, LENGTH)
        mask = places < inner
        w = load_weights(weights, parameter, places, mask, LOW, CACHE)
        g = load_gradient(gradient, places, mask, shrink, SCALED_LOSS, CACHE)
        if FACTORED:
            g = in_metric(g, about, first, places, True, mask, TYPE)
        moved = to_w * w + to_g * g
        if BUFFERED:
            b = tl.load(buffer + places, mask=mask, other=0.0, eviction_policy=CACHE)
            moved += to_b * b
            turned = tl.where(kind == UNIT, back * w, 0.0)
            tl.store(buffer + places, keep * b + slope * g + turned, mask=mask, eviction_policy=CACHE)
        tt += moved * moved
        store_weights(weights, parameter, places, mask, moved, LOW, CACHE)
    if (kind == UNIT) & (is_safe == 0):
        norm = tl.sqrt(tl.sum(tt, 0))
        for block in range(0, inner, LENGTH):
            places = block + tl.arange(0, LENGTH)
            mask = places < inner
            w = tl.load(weights + places, mask=mask, other=0.0)
            store_weights(weights, parameter, places, mask, w / norm, LOW)
