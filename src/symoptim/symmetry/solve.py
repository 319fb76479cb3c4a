"""The null space of a system, sparse and vectorized.

Nearly all equations of a network say ``x = 0``, ``x = y``, or name an unknown that occurs nowhere else (the
scale of a weight's row or column). The first two merge unknowns; an equation of the third kind only says what
that unknown is, and is put aside. These two steps repeat until nothing changes; what is left is small, and is
eliminated row by row. Which unknowns stay free can be asked for, so that generators can be read.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.form import FIXED
from symoptim.symmetry.sparse import TINY, Sparse, product
from symoptim.symmetry.tensors import first_places, on_cpu, unique_rows, unique_values

LONGEST = 8  # terms of an equation that is looked for among others


class NullSpace(NamedTuple):
    """Every unknown as a combination of free ones: ``unknown = combination @ free``."""

    free: Tensor
    combination: Sparse


class _Level(NamedTuple):
    """Unknowns that were put aside together, and what each is: place in unknowns, unknown, value."""

    unknowns: Tensor
    entries: Sparse


@on_cpu
def null_space(count: int, equations: Sequence[tuple[tuple[float, ...], Tensor]], rank: Tensor) -> NullSpace:
    """Solve homogeneous equations.

    Args:
        count: number of unknowns; unknown 0 is zero.
        equations: coefficients ``(t,)`` and ids ``(n, t)``, as :class:`.system.System` has them.
        rank: how much an unknown is rather to be expressed by others than to stay free, ``(count,)``.

    Returns:
        Free unknowns, and all unknowns in terms of them.
    """
    label = torch.arange(count)
    rows = _entries(equations)
    levels: list[_Level] = []
    while len(rows.rows):
        label, rows = _merge(label, rows, count, rank)
        level, rows = _put_aside(_distinct(rows), count, rank)
        if level is None:
            level, rows = _eliminate_one(rows, count, rank)
        if level is not None:
            levels.append(level)
    return _composed(label, levels, count)


def _entries(equations: Sequence[tuple[tuple[float, ...], Tensor]]) -> Sparse:
    """All equations as one matrix."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    start = 0
    for coefficients, ids in equations:
        numbers = torch.arange(start, start + len(ids))[:, None].expand_as(ids)
        values = torch.tensor(coefficients, dtype=torch.float64).expand(ids.shape)
        parts.append((numbers.reshape(-1), ids.reshape(-1), values.reshape(-1)))
        start += len(ids)
    if not parts:
        nothing = torch.zeros(0, dtype=torch.int64)
        return Sparse(nothing, nothing, nothing.double())
    rows, columns, values = (torch.cat([part[k] for part in parts]) for k in range(3))
    return Sparse(rows, columns, values)


def _merge(label: Tensor, rows: Sparse, count: int, rank: Tensor) -> tuple[Tensor, Sparse]:
    """Merge unknowns that are equal, or zero, until no equation says so any more."""
    while True:
        rows = Sparse(rows.rows, label[rows.columns], rows.values)
        rows = rows.chosen(rows.columns != FIXED).summed(count)
        if not len(rows.rows):
            return label, rows
        _, number = unique_values(rows.rows)
        sizes = torch.bincount(number)
        rows = Sparse(number, rows.columns, rows.values)
        starts = sizes.cumsum(0) - sizes
        zero = rows.columns[starts[sizes == 1]]
        pairs = starts[sizes == 2]
        opposite = (rows.values[pairs] + rows.values[pairs + 1]).abs() < TINY
        alike, like = _alike(rows, pairs[~opposite])
        pairs = pairs[opposite]
        if not len(zero) and not len(pairs) and not len(alike):
            return label, rows
        one = torch.cat([zero, rows.columns[pairs], alike])
        other = torch.cat([torch.full_like(zero, FIXED), rows.columns[pairs + 1], like])
        label = _joined(one, other, count, rank)[label]


def _alike(rows: Sparse, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Unknowns that are the same multiple of the same unknown: all squares that are averaged are of one."""
    ratios = ((rows.values[pairs + 1] / rows.values[pairs]) / TINY).round().long()
    found: list[tuple[Tensor, Tensor]] = []
    mine, theirs = rows.columns[pairs], rows.columns[pairs + 1]
    for unknown, of in ((mine, theirs), (theirs, mine)):
        different, which = unique_rows(torch.stack([of, ratios], dim=1))
        like = unknown[first_places(which, len(different))][which]
        found.append((unknown[unknown != like], like[unknown != like]))
    one, other = zip(*found, strict=True)
    return torch.cat(one), torch.cat(other)


def _distinct(rows: Sparse) -> Sparse:
    """Every equation once: a convolution says the same for all entries of its kernel."""
    if not len(rows.rows):
        return rows
    sizes = torch.bincount(rows.rows)
    starts = sizes.cumsum(0) - sizes
    keep = torch.ones(len(sizes), dtype=torch.bool)
    for size in range(2, LONGEST + 1):
        equations = (sizes == size).nonzero().flatten()
        entries = starts[equations][:, None] + torch.arange(size)
        ratios = rows.values[entries] / rows.values[entries[:, :1]]
        table = torch.cat([rows.columns[entries], (ratios / TINY).round().long()], dim=1)
        different, which = unique_rows(table)
        keep[equations] = False
        keep[equations[first_places(which, len(different))]] = True
    return rows.chosen(keep[rows.rows])


def _joined(one: Tensor, other: Tensor, count: int, rank: Tensor) -> Tensor:
    """Representative of every unknown, once these pairs are equal: zero, else of the lowest rank."""
    joined, which = unique_values(torch.cat([one, other, torch.tensor([FIXED])]))
    rank = rank[joined].index_fill(0, which[-1:], -1)
    order = torch.argsort(rank, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    one, other = place[which[: len(one)]], place[which[len(one) : -1]]
    best = torch.arange(len(order))  # here unknowns go by their rank, and the smaller one represents
    while True:
        lower, upper = torch.minimum(best[one], best[other]), torch.maximum(best[one], best[other])
        if torch.equal(lower, upper):
            label = torch.arange(count)
            label[joined] = joined[order[best[place]]]
            return label
        best.scatter_reduce_(0, upper, lower, "amin")
        while not torch.equal(best, best[best]):
            best = best[best]


def _put_aside(rows: Sparse, count: int, rank: Tensor) -> tuple[_Level | None, Sparse]:
    """Take out equations that name an unknown no other equation names: they only say what it is."""
    uses = torch.bincount(rows.columns, minlength=count)
    lonely = uses[rows.columns] == 1
    if not bool(lonely.any()):
        return None, rows
    ranks = torch.where(lonely, rank[rows.columns], -1)
    named = rows.chosen(ranks == ranks.max())
    once = torch.ones(len(named.rows), dtype=torch.bool)
    once[:-1] = named.rows[:-1] != named.rows[1:]  # one unknown per equation: the last one
    return _expressed(rows, named.chosen(once))


def _eliminate_one(rows: Sparse, count: int, rank: Tensor) -> tuple[_Level | None, Sparse]:
    """Express the unknown with the fewest uses by one of its equations, and put that into the others."""
    if not len(rows.rows):
        return None, rows
    uses = torch.bincount(rows.columns, minlength=count)[rows.columns]
    where = (uses - rank[rows.columns] * 2 * len(rows.rows)).argmin()
    chosen = torch.arange(len(rows.rows)) == where
    mine = rows.rows == rows.rows[where]
    equation = rows.chosen(mine)
    others = rows.chosen((rows.columns == rows.columns[where]) & ~mine)
    factors = -others.values / rows.values[where]
    added = Sparse(
        others.rows.repeat_interleave(len(equation.rows)),
        equation.columns.repeat(len(others.rows)),
        (factors[:, None] * equation.values).reshape(-1),
    )
    joined = Sparse(*(torch.cat([old, new]) for old, new in zip(rows, added, strict=True)))
    return _expressed(joined.summed(count), rows.chosen(chosen))


def _expressed(rows: Sparse, pivots: Sparse) -> tuple[_Level, Sparse]:
    """Turn the equations of some entries into expressions of these entries' unknowns."""
    place = torch.full((int(rows.rows.max()) + 1,), -1)
    place[pivots.rows] = torch.arange(len(pivots.rows))
    mine = place[rows.rows]
    used = (mine >= 0) & (rows.columns != pivots.columns[mine])
    values = -rows.values[used] / pivots.values[mine[used]]
    return _Level(pivots.columns, Sparse(mine[used], rows.columns[used], values)), rows.chosen(mine < 0)


def _composed(label: Tensor, levels: list[_Level], count: int) -> NullSpace:
    """All unknowns in terms of free ones, from what was put aside last to what was first."""
    taken = torch.zeros(count, dtype=torch.bool)
    taken[FIXED] = True
    for level in levels:
        taken[level.unknowns] = True
    free = ((label == torch.arange(count)) & ~taken).nonzero().flatten()
    number = torch.full((count,), -1)
    number[free] = torch.arange(len(free))
    known = Sparse(free, number[free], torch.ones(len(free), dtype=torch.float64))
    for level in reversed(levels):
        entries = Sparse(level.entries.rows, label[level.entries.columns], level.entries.values)
        found = product(entries, known, count).summed(max(1, len(free)))
        found = Sparse(level.unknowns[found.rows], found.columns, found.values)
        known = Sparse(*(torch.cat([old, new]) for old, new in zip(known, found, strict=True)))
    everything = Sparse(torch.arange(count), label, torch.ones(count, dtype=torch.float64))
    return NullSpace(free, product(everything, known, count).summed(max(1, len(free))))
