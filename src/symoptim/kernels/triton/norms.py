# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - capital letters are known when a kernel is compiled
"""Logarithms of the norms of rows or columns of matrices, their entries multiplied by factors.

Sums are of float64, so that no square is too small or too large, and in an order that never changes. A
program has ``(first entry, its factor, entries of a row, rows, columns, place of the first sum, length
class)``, all at hand: it is short, and would wait for a table longer than for the entries.
"""

import triton
import triton.language as tl

from symoptim.kernels.triton import pieces

FIELDS = tl.constexpr(pieces.FIELDS)


@triton.jit
def _pointer(address, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    # Where a multiple of 16 bytes is promised, entries are read 16 bytes at a time.
    pointer = address.to(tl.pointer_type(TYPE))
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def _even(count, ALIGNED: tl.constexpr):
    # A promise would be forgotten where a number comes from another function.
    return count // 8 * 8 if ALIGNED else count


@triton.jit
def _root(total):
    """Logarithm of the root; minus infinity of nothing."""
    return tl.log(total) / 2


@triton.jit
def _some_rows(
    weights, factors, inner, count, width, roots,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, HEIGHT), tl.arange(0, LENGTH)
    here, there = rows < count, columns < _even(width, ALIGNED)
    places = rows[:, None] * _even(inner, ALIGNED) + columns[None, :]
    pointer = _pointer(weights, TYPE, ALIGNED)
    w = tl.load(pointer + places, mask=here[:, None] & there[None, :], other=0.0).to(tl.float64)
    if factors != 0:
        by_column = tl.load(_pointer(factors, TYPE, ALIGNED) + columns, mask=there, other=0.0)
        w = w * by_column.to(tl.float64)[None, :]
    tl.store(roots + rows, _root(tl.sum(w * w, 1)), mask=here)


@triton.jit
def of_rows(programs, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr):
    """Norms of rows, or of pieces of them."""
    mine = programs + FIELDS * tl.program_id(0)
    weights, factors, length = tl.load(mine), tl.load(mine + 1), tl.load(mine + 6)
    inner, rows = tl.load(mine + 2).to(tl.int32), tl.load(mine + 3).to(tl.int32)
    width, roots = tl.load(mine + 4).to(tl.int32), roots + tl.load(mine + 5)
    if length == 64:
        _some_rows(weights, factors, inner, rows, width, roots, TYPE, ALIGNED, TILE // 64, 64)
    elif length == 256:
        _some_rows(weights, factors, inner, rows, width, roots, TYPE, ALIGNED, TILE // 256, 256)
    elif length == 512:
        _some_rows(weights, factors, inner, rows, width, roots, TYPE, ALIGNED, TILE // 512, 512)
    elif length == 1024:
        _some_rows(weights, factors, inner, rows, width, roots, TYPE, ALIGNED, TILE // 1024, 1024)
    else:
        _some_rows(weights, factors, inner, rows, width, roots, TYPE, ALIGNED, 1, TILE)


@triton.jit
def of_columns(
    programs, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, ACROSS: tl.constexpr
):
    """Norms of columns, or of pieces of them."""
    mine = programs + FIELDS * tl.program_id(0)
    weights, factors = tl.load(mine), tl.load(mine + 1)
    inner, count = _even(tl.load(mine + 2), ALIGNED), tl.load(mine + 3).to(tl.int32)
    columns = tl.arange(0, ACROSS)
    there = columns < _even(tl.load(mine + 4).to(tl.int32), ALIGNED)
    total = tl.zeros((TILE // ACROSS, ACROSS), tl.float64)
    for block in range(0, count, TILE // ACROSS):
        rows = block + tl.arange(0, TILE // ACROSS)
        here = rows < count
        places = rows[:, None] * inner + columns[None, :]
        pointer = _pointer(weights, TYPE, ALIGNED)
        w = tl.load(pointer + places, mask=here[:, None] & there[None, :], other=0.0).to(tl.float64)
        if factors != 0:
            by_row = tl.load(_pointer(factors, TYPE, False) + rows, mask=here, other=0.0)
            w = w * by_row.to(tl.float64)[:, None]
        total += w * w
    tl.store(roots + tl.load(mine + 5) + columns, _root(tl.sum(total, 0)), mask=there)
