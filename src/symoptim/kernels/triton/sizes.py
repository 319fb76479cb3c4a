# pyright: basic, reportMissingImports=false
# ruff: noqa: N803 - capital letters are known when a kernel is compiled
"""The arithmetic between norms and factors of the full metric (:mod:`symoptim.metric.reference`).

All of it is of float64, and every number is added up by one program, in an order that never changes.
"""

import triton
import triton.language as tl

from symoptim.kernels.triton import members as meaning

AS_ONE, KEPT = tl.constexpr(meaning.AS_ONE), tl.constexpr(meaning.KEPT)


@triton.jit
def _combined(starts, columns, values, sizes, entries, mask):
    """Sums of sizes times exponents, of entries of a sparse matrix by rows."""
    begin = tl.load(starts + entries, mask=mask, other=0)
    end = tl.load(starts + entries + 1, mask=mask, other=0)
    total = tl.zeros(entries.shape, tl.float64)
    for step in range(0, tl.max((end - begin).to(tl.int32))):
        there = begin + step < end
        column = tl.load(columns + begin + step, mask=there, other=0)
        size = tl.load(sizes + column, mask=there, other=0.0)
        total += size * tl.load(values + begin + step, mask=there, other=0.0)
    return total


@triton.jit
def inverses(
    programs, starts, columns, values, sizes, largest, factors,
    TYPE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write one over the scales that are divided out of matrices, and the logarithms of the largest of each.

    A program has ``(matrix, its first and last entry, its own first entry, the place of its first factor)``.
    """
    mine = programs + 5 * tl.program_id(0)
    begin, end, own = tl.load(mine + 1), tl.load(mine + 2), tl.load(mine + 3)
    top = tl.full((TILE,), -float("inf"), tl.float64)
    for block in range(begin, end, TILE):
        entries = block + tl.arange(0, TILE)
        mask = entries < end
        scales = _combined(starts, columns, values, sizes, entries, mask)
        top = tl.maximum(top, tl.where(mask, -scales, -float("inf")))
    most = tl.max(top, 0)
    tl.store(largest + tl.load(mine), most)
    entries = own + tl.arange(0, BLOCK)
    mask = entries < end
    scales = _combined(starts, columns, values, sizes, entries, mask)
    place = tl.load(mine + 4) + tl.arange(0, BLOCK)
    tl.store(factors + place, tl.exp(-scales - most).to(TYPE), mask=mask)


@triton.jit
def _some_units(
    mine, members, roots, reads, largest, starts, columns, values, sizes, about, targets, out,
    ZERO: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Logarithms of root mean squares, as sums of exponentials: products along paths do not fit otherwise."""
    unit = tl.load(mine) + tl.arange(0, HEIGHT)
    here = unit < tl.load(mine + 1)
    begin = tl.load(members + unit, mask=here, other=0)
    end = tl.load(members + unit + 1, mask=here, other=0)
    top = tl.full((HEIGHT,), -float("inf"), tl.float64)
    total = tl.zeros((HEIGHT,), tl.float64)
    for block in range(0, tl.max((end - begin).to(tl.int32)), WIDTH):
        member = begin[:, None] + block + tl.arange(0, WIDTH)[None, :]
        mask = member < end[:, None]
        root = tl.load(reads + 2 * member, mask=mask, other=0)
        read = tl.load(reads + 2 * member + 1, mask=mask, other=-1)
        logs = tl.load(roots + root, mask=mask, other=-float("inf"))
        logs += tl.load(largest + read, mask=read >= 0, other=0.0)
        logs -= _combined(starts, columns, values, sizes, member, mask)
        most = tl.maximum(top, tl.max(logs, 1))
        # Nothing has no logarithm to be measured from.
        safe = tl.where(most == -float("inf"), 0.0, most)
        total = total * tl.exp(2 * (top - safe)) + tl.sum(tl.exp(2 * (logs - safe[:, None])), 1)
        top = most
    mean = total * tl.load(about + 2 * unit, mask=here, other=1.0)
    if ZERO == AS_ONE:
        mean = tl.where(mean == 0, 1.0, mean)
    size = tl.where(top == -float("inf"), 0.0, top) + tl.log(mean) / 2
    size = size / tl.load(about + 2 * unit + 1, mask=here, other=1.0)
    target = tl.load(targets + unit, mask=here, other=0)
    if ZERO == KEPT:
        here = here & (total > 0)
    tl.store(out + target, size, mask=here)


@triton.jit
def units(
    programs, members, roots, reads, largest, starts, columns, values, sizes, about, targets, out,
    ZERO: tl.constexpr,
):  # fmt: skip
    """Write the sizes of units: ``about`` has their weights and exponents, ``members`` where theirs begin.

    Of a member, ``reads`` has the place of its root and the matrix it is of, if something was divided out of
    that; the sparse matrix, what is known of its own scale. ZERO says what becomes of a unit with no size. A
    program has ``(first unit, last unit, width)``.
    """
    mine = programs + 3 * tl.program_id(0)
    width = tl.load(mine + 2)
    if width == 4:
        _some_units(
            mine, members, roots, reads, largest, starts, columns, values, sizes, about, targets, out,
            ZERO, 256, 4,
        )  # fmt: skip
    elif width == 32:
        _some_units(
            mine, members, roots, reads, largest, starts, columns, values, sizes, about, targets, out,
            ZERO, 32, 32,
        )  # fmt: skip
    elif width == 256:
        _some_units(
            mine, members, roots, reads, largest, starts, columns, values, sizes, about, targets, out,
            ZERO, 4, 256,
        )  # fmt: skip
    else:
        _some_units(
            mine, members, roots, reads, largest, starts, columns, values, sizes, about, targets, out,
            ZERO, 1, 4096,
        )  # fmt: skip


@triton.jit
def spread(starts, columns, values, growing, shrinking, out, count, BLOCK: tl.constexpr):
    """Write sums of sizes times exponents: some sizes where these are positive, others where not."""
    entries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = entries < count
    begin = tl.load(starts + entries, mask=mask, other=0)
    end = tl.load(starts + entries + 1, mask=mask, other=0)
    total = tl.zeros((BLOCK,), tl.float64)
    for step in range(0, tl.max((end - begin).to(tl.int32))):
        there = begin + step < end
        column = tl.load(columns + begin + step, mask=there, other=0)
        value = tl.load(values + begin + step, mask=there, other=0.0)
        up = tl.load(growing + column, mask=there & (value > 0), other=0.0)
        down = tl.load(shrinking + column, mask=there & (value <= 0), other=0.0)
        total += value * (up + down)
    tl.store(out + entries, total, mask=mask)


@triton.jit
def sides(logs, places, weights, out, count, power, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Write factors of rows and columns; of each, ``places`` has its own position and two to be moved by."""
    entries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = entries < count
    own = tl.load(logs + tl.load(places + 3 * entries, mask=mask, other=0), mask=mask, other=0.0)
    added = tl.load(logs + tl.load(places + 3 * entries + 1, mask=mask, other=0), mask=mask, other=0.0)
    taken = tl.load(logs + tl.load(places + 3 * entries + 2, mask=mask, other=0), mask=mask, other=0.0)
    weight = tl.load(weights + entries, mask=mask, other=0.0)
    found = tl.exp(power * (own * weight + (added - taken) / 2))
    tl.store(out + entries, found.to(TYPE), mask=mask)
