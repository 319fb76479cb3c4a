# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - capital letters are known when a kernel is compiled
"""Norms of the rows or columns of matrices, their entries multiplied by factors.

Sums are of float64, so that no square is too small or too large, and in an order that never changes.
"""

import triton
import triton.language as tl

FIELDS = tl.constexpr(7)  # of a program


@triton.jit
def _pointer(address, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    # Where a multiple of 16 bytes is promised, entries are read 16 bytes at a time.
    pointer = address.to(tl.pointer_type(TYPE))
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def _count(mine, WHICH: tl.constexpr, ALIGNED: tl.constexpr):
    count = tl.load(mine + WHICH).to(tl.int32)
    return tl.multiple_of(count, 8) if ALIGNED else count


@triton.jit
def _root(total):
    """Logarithm of the root; minus infinity of nothing."""
    return tl.log(total) / 2


@triton.jit
def _short_rows(
    weights, factors, mine, roots,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Some rows, read at once."""
    inner = _count(mine, 2, ALIGNED)
    rows, columns = tl.arange(0, HEIGHT), tl.arange(0, LENGTH)
    here, there = rows < tl.load(mine + 3), columns < inner
    places = rows[:, None] * inner + columns[None, :]
    pointer = _pointer(weights, TYPE, ALIGNED)
    w = tl.load(pointer + places, mask=here[:, None] & there[None, :], other=0.0).to(tl.float64)
    if factors != 0:
        by_column = tl.load(_pointer(factors, TYPE, ALIGNED) + columns, mask=there, other=0.0)
        w = w * by_column.to(tl.float64)[None, :]
    tl.store(roots + rows, _root(tl.sum(w * w, 1)), mask=here)


@triton.jit
def _long_row(weights, factors, mine, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr):
    """A piece of one row."""
    length = _count(mine, 4, ALIGNED)
    total = tl.zeros((TILE,), tl.float64)
    for block in range(0, length, TILE):
        columns = block + tl.arange(0, TILE)
        w = tl.load(_pointer(weights, TYPE, ALIGNED) + columns, mask=columns < length, other=0.0)
        w = w.to(tl.float64)
        if factors != 0:
            by_column = tl.load(_pointer(factors, TYPE, ALIGNED) + columns, mask=columns < length, other=0.0)
            w = w * by_column.to(tl.float64)
        total += w * w
    tl.store(roots, _root(tl.sum(total, 0)))


@triton.jit
def _columns(
    weights, factors, mine, roots,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """Pieces of some columns."""
    inner, count = _count(mine, 2, ALIGNED).to(tl.int64), tl.load(mine + 3).to(tl.int32)
    columns = tl.arange(0, ACROSS)
    there = columns < _count(mine, 4, ALIGNED)
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
    tl.store(roots + columns, _root(tl.sum(total, 0)), mask=there)


@triton.jit
def squares(
    programs, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, ACROSS: tl.constexpr
):
    """Every program writes logarithms of the norms of some rows or columns, or of pieces of them.

    It has ``(first entry, its factor, entries of a row, rows, columns, place of the first sum, length
    class)``, all at hand: programs are short, and would wait for a table longer than for the entries.
    """
    mine = programs + FIELDS * tl.program_id(0)
    weights, factors, length = tl.load(mine), tl.load(mine + 1), tl.load(mine + 6)
    roots += tl.load(mine + 5)
    if length == 0:
        _columns(weights, factors, mine, roots, TYPE, ALIGNED, TILE, ACROSS)
    elif length == 1:
        _long_row(weights, factors, mine, roots, TYPE, ALIGNED, TILE)
    elif length == 64:
        _short_rows(weights, factors, mine, roots, TYPE, ALIGNED, TILE // 64, 64)
    elif length == 256:
        _short_rows(weights, factors, mine, roots, TYPE, ALIGNED, TILE // 256, 256)
    elif length == 1024:
        _short_rows(weights, factors, mine, roots, TYPE, ALIGNED, TILE // 1024, 1024)
    else:
        _short_rows(weights, factors, mine, roots, TYPE, ALIGNED, 1, TILE)
