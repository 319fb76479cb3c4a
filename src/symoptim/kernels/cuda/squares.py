# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - capital letters are known when a kernel is compiled
"""Norms of the rows or columns of matrices, their entries multiplied by factors.

Sums are of float64, so that no square is too small or too large, and in an order that never changes.
"""

import triton
import triton.language as tl

from symoptim.kernels import squares as layout
from symoptim.kernels.cuda.parts import COLUMNS, INNER, ROWS, WEIGHTS

WIDTH = tl.constexpr(layout.WIDTH)
FIELDS = tl.constexpr(7)  # of a program


@triton.jit
def _pointer(about, WHICH: tl.constexpr, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    pointer = tl.load(about + WHICH).to(tl.pointer_type(TYPE))
    return tl.multiple_of(pointer, 16) if ALIGNED else pointer


@triton.jit
def _inner(about, ALIGNED: tl.constexpr):
    inner = tl.load(about + INNER)
    return tl.multiple_of(inner, 8) if ALIGNED else inner


@triton.jit
def _root(total):
    """Logarithm of the root; minus infinity of nothing."""
    return tl.log(total) / 2


@triton.jit
def _short_rows(
    about, mine, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr
):
    """Some rows, read at once."""
    inner, first, last = _inner(about, ALIGNED), tl.load(mine + 1), tl.load(mine + 2)
    rows, columns = tl.arange(0, HEIGHT), tl.arange(0, LENGTH)
    here, there = first + rows < last, columns < inner
    weights = _pointer(about, WEIGHTS, TYPE, ALIGNED) + first * inner
    places = rows[:, None] * inner + columns[None, :]
    w = tl.load(weights + places, mask=here[:, None] & there[None, :], other=0.0).to(tl.float64)
    if tl.load(about + COLUMNS) != 0:
        factors = tl.load(_pointer(about, COLUMNS, TYPE, ALIGNED) + columns, mask=there, other=0.0)
        w = w * factors.to(tl.float64)[None, :]
    tl.store(roots + tl.load(mine + 5) + rows, _root(tl.sum(w * w, 1)), mask=here)


@triton.jit
def _long_row(about, mine, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr):
    """A piece of one row."""
    first, last = tl.load(mine + 3), tl.load(mine + 4)
    weights = _pointer(about, WEIGHTS, TYPE, ALIGNED) + tl.load(mine + 1) * _inner(about, ALIGNED)
    by_column = tl.load(about + COLUMNS)
    factors = _pointer(about, COLUMNS, TYPE, ALIGNED)
    if ALIGNED:
        first, last = tl.multiple_of(first, 8), tl.multiple_of(last, 8)
    total = tl.zeros((TILE,), tl.float64)
    for block in range(first, last, TILE):
        columns = block + tl.arange(0, TILE)
        w = tl.load(weights + columns, mask=columns < last, other=0.0).to(tl.float64)
        if by_column != 0:
            w = w * tl.load(factors + columns, mask=columns < last, other=0.0).to(tl.float64)
        total += w * w
    tl.store(roots + tl.load(mine + 5), _root(tl.sum(total, 0)))


@triton.jit
def _columns(
    about, mine, roots, TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, ACROSS: tl.constexpr
):
    """Pieces of some columns."""
    inner, first, last = _inner(about, ALIGNED), tl.load(mine + 1), tl.load(mine + 2)
    left, right = tl.load(mine + 3), tl.load(mine + 4)
    if ALIGNED:
        left = tl.multiple_of(left, 8)
    columns = left + tl.arange(0, ACROSS)
    there = columns < right
    weights = _pointer(about, WEIGHTS, TYPE, ALIGNED)
    by_row, factors = tl.load(about + ROWS), _pointer(about, ROWS, TYPE, False)
    total = tl.zeros((TILE // ACROSS, ACROSS), tl.float64)
    for block in range(first, last, TILE // ACROSS):
        rows = block + tl.arange(0, TILE // ACROSS)
        here = rows < last
        places = rows[:, None] * inner + columns[None, :]
        w = tl.load(weights + places, mask=here[:, None] & there[None, :], other=0.0).to(tl.float64)
        if by_row != 0:
            w = w * tl.load(factors + rows, mask=here, other=0.0).to(tl.float64)[:, None]
        total += w * w
    tl.store(roots + tl.load(mine + 5) + tl.arange(0, ACROSS), _root(tl.sum(total, 0)), mask=there)


@triton.jit
def squares(
    table, programs, roots,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """Every program writes logarithms of the norms of some rows or columns, or of pieces of them."""
    mine = programs + FIELDS * tl.program_id(0)
    about = table + WIDTH * tl.load(mine)
    length = tl.load(mine + 6)
    if length == 0:
        _columns(about, mine, roots, TYPE, ALIGNED, TILE, ACROSS)
    elif length == 1:
        _long_row(about, mine, roots, TYPE, ALIGNED, TILE)
    elif length == 64:
        _short_rows(about, mine, roots, TYPE, ALIGNED, TILE // 64, 64)
    elif length == 256:
        _short_rows(about, mine, roots, TYPE, ALIGNED, TILE // 256, 256)
    elif length == 1024:
        _short_rows(about, mine, roots, TYPE, ALIGNED, TILE // 1024, 1024)
    else:
        _short_rows(about, mine, roots, TYPE, ALIGNED, 1, TILE)
