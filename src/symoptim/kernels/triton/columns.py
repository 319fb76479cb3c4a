# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - capital letters are known when a kernel is compiled
"""The kernels for filters that many programs share: columns of a matrix, and very long rows.

Both are matrices in memory: a long row is cut into lines of 128 entries, all of one filter. A program has 128
neighboring columns and some lines of it. What it finds on a filter it leaves in ``scratch`` for the others:

    1  ``sums``     products of the filter's weights with themselves, the gradient and the momentum
    2  ``move``     adds up what all programs have found, and steps
    3  ``divide``   filters of unit norm only: adds up the new squared norms, and divides
"""

import triton
import triton.language as tl

from symoptim.kernels import dispatch
from symoptim.kernels.triton import tiling as programs_of
from symoptim.kernels.triton.common import (
    GROUP,
    KIND,
    NUMBERS,
    UNIT,
    WIDTH,
    coefficients,
    inverse_scale,
    load_gradient,
    load_weights,
    pointers,
    store_weights,
)

LINES = tl.constexpr(16)  # that are read at once
AT_ONCE = tl.constexpr(16)  # programs whose findings are
ACROSS = tl.constexpr(dispatch.ACROSS)  # columns of a program

TENSOR, BASE, STRIDE, FIRST, LAST, COLUMNS, END, SCRATCH, SEGMENT, SEGMENTS, INNER = map(
    tl.constexpr, range(programs_of.FIELDS)
)
"""Of a program: its tensor, place of its first column, distance of lines, its lines, how many columns are
there, where the matrix ends; where its findings go, its number among the programs that share the filters, how
many these are, and how many neighboring columns make up a filter."""
FIELDS = tl.constexpr(programs_of.FIELDS)
FOUND = tl.constexpr(programs_of.FOUND)  # numbers per column: ww, wg, wb, and the new ww


@triton.jit
def _places(mine, line):
    """Places of some lines, and which of them are there."""
    lines, columns = line + tl.arange(0, LINES)[:, None], tl.arange(0, ACROSS)[None, :]
    places = tl.load(mine + BASE) + lines * tl.load(mine + STRIDE) + columns
    there = (lines < tl.load(mine + LAST)) & (columns < tl.load(mine + COLUMNS))
    return places, there & (places < tl.load(mine + END))


@triton.jit
def _leave(mine, scratch, WHICH: tl.constexpr, found):
    place = tl.load(mine + SCRATCH) + (tl.load(mine + SEGMENT) * FOUND + WHICH) * ACROSS
    tl.store(scratch + place + tl.arange(0, ACROSS), found.to(tl.float64))


@triton.jit
def _total(mine, scratch, WHICH: tl.constexpr, TYPE: tl.constexpr):
    """What all programs have found, of the filter of each column."""
    inner, segments = tl.load(mine + INNER), tl.load(mine + SEGMENTS)
    start = scratch + tl.load(mine + SCRATCH) + WHICH * ACROSS
    columns = tl.arange(0, ACROSS)[None, :]
    total = tl.zeros((ACROSS,), tl.float64)
    for first in range(0, segments, AT_ONCE):
        segment = first + tl.arange(0, AT_ONCE)[:, None]
        places, mask = start + segment * FOUND * ACROSS, segment < segments
        if inner == 1:
            total += tl.sum(tl.load(places + columns, mask=mask, other=0.0), 0)
        elif inner == ACROSS:
            total += tl.sum(tl.load(places + columns, mask=mask, other=0.0))
        else:
            for column in range(0, inner):
                there = columns // inner * inner + column
                total += tl.sum(tl.load(places + there, mask=mask & (there < ACROSS), other=0.0), 0)
    return total.to(TYPE)


@triton.jit
def sums(
    table, programs, scratch, grad_scale, found_inf,
    TYPE: tl.constexpr, LOW: tl.constexpr, BUFFERED: tl.constexpr, SCALED_LOSS: tl.constexpr,
):  # fmt: skip
    """Products of weights with themselves, gradient and momentum."""
    mine = programs + FIELDS * tl.program_id(0)
    about = table + WIDTH * tl.load(mine + TENSOR)
    kind = tl.load(about + KIND)
    if SCALED_LOSS and tl.load(found_inf) != 0:
        return
    shrink = inverse_scale(grad_scale, TYPE, SCALED_LOSS)
    weights, parameter, gradient, buffer = pointers(about, 0, TYPE, LOW, False)
    ww, wg, wb = tl.zeros((ACROSS,), TYPE), tl.zeros((ACROSS,), TYPE), tl.zeros((ACROSS,), TYPE)
    for line in range(tl.load(mine + FIRST), tl.load(mine + LAST), LINES):
        places, mask = _places(mine, line)
        w = load_weights(weights, parameter, places, mask, LOW)
        ww += tl.sum(w * w, 0)
        if kind == UNIT:
            wg += tl.sum(w * load_gradient(gradient, places, mask, shrink, SCALED_LOSS), 0)
            if BUFFERED:
                wb += tl.sum(w * tl.load(buffer + places, mask=mask, other=0.0), 0)
    _leave(mine, scratch, 0, ww)
    _leave(mine, scratch, 1, wg)
    _leave(mine, scratch, 2, wb)


@triton.jit
def move(
    table, programs, numbers, scratch, grad_scale, found_inf,
    TYPE: tl.constexpr, LOW: tl.constexpr, BUFFERED: tl.constexpr, SCALED_LOSS: tl.constexpr,
):  # fmt: skip
    """Step, with what all programs have found."""
    mine = programs + FIELDS * tl.program_id(0)
    about = table + WIDTH * tl.load(mine + TENSOR)
    kind = tl.load(about + KIND)
    group = numbers + NUMBERS * tl.load(about + GROUP)
    if SCALED_LOSS and tl.load(found_inf) != 0:
        return
    shrink = inverse_scale(grad_scale, TYPE, SCALED_LOSS)
    weights, parameter, gradient, buffer = pointers(about, 0, TYPE, LOW, False)
    ww = _total(mine, scratch, 0, TYPE)
    wg, wb = tl.zeros((ACROSS,), TYPE), tl.zeros((ACROSS,), TYPE)
    if kind == UNIT:
        wg = _total(mine, scratch, 1, TYPE)
        if BUFFERED:
            wb = _total(mine, scratch, 2, TYPE)
    to_w, to_g, to_b, keep, slope, back = coefficients(kind, ww, wg, wb, group, TYPE)
    tt = tl.zeros((ACROSS,), TYPE)
    for line in range(tl.load(mine + FIRST), tl.load(mine + LAST), LINES):
        places, mask = _places(mine, line)
        w = load_weights(weights, parameter, places, mask, LOW)
        g = load_gradient(gradient, places, mask, shrink, SCALED_LOSS)
        moved = to_w[None, :] * w + to_g[None, :] * g
        if BUFFERED:
            b = tl.load(buffer + places, mask=mask, other=0.0)
            moved += to_b * b
            turned = tl.where(kind == UNIT, back[None, :] * w, 0.0)
            tl.store(buffer + places, keep * b + slope[None, :] * g + turned, mask=mask)
        tt += tl.sum(tl.where(mask, moved * moved, 0.0), 0)
        store_weights(weights, parameter, places, mask, moved, LOW)
    _leave(mine, scratch, 3, tt)


@triton.jit
def divide(
    table, programs, scratch, found_inf, TYPE: tl.constexpr, LOW: tl.constexpr, SCALED_LOSS: tl.constexpr
):
    """Bring filters to unit norm."""
    mine = programs + FIELDS * tl.program_id(0)
    about = table + WIDTH * tl.load(mine + TENSOR)
    if SCALED_LOSS and tl.load(found_inf) != 0:
        return
    weights, parameter, _, _ = pointers(about, 0, TYPE, LOW, False)
    if tl.load(about + KIND) == UNIT:
        norm = tl.sqrt(_total(mine, scratch, 3, TYPE))
        for line in range(tl.load(mine + FIRST), tl.load(mine + LAST), LINES):
            places, mask = _places(mine, line)
            w = tl.load(weights + places, mask=mask, other=0.0)
            store_weights(weights, parameter, places, mask, w / norm[None, :], LOW)
