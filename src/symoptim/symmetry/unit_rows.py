r"""Rows whose norm is gauge, and the rescaling that makes it one: outputs stay what they were.

The norm of a row is gauge if a generator scales that row of its weight, all of it and no other row: its norm
can then be anything, and the other tensors that the generator moves absorb the change. A weight counts if all
of its rows have such generators, each its own: of a query and its key, of which only the product matters, one
can have unit norm.

What absorbs a scale may be a column of another such weight, whose rows are then normalized later. Weights
that would each have to wait for the other are left out.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.errors import ZeroFilterError
from symoptim.geometry.filters import filter_axes, has_unit_norm, lacks_direction, norm
from symoptim.symmetry.sparse import TINY, Sparse, product
from symoptim.symmetry.spec import Moved, SymmetrySpec
from symoptim.symmetry.tensors import on_cpu


class GaugeRows(NamedTuple):
    """A weight all of whose rows have a norm that is gauge."""

    name: str
    axis: int
    """The axis that counts rows."""
    generators: Tensor
    """By row, the number of the generator that scales it alone."""
    exponents: Tensor
    """By row, the power of that generator by which it scales."""


@on_cpu
def gauge_rows(spec: SymmetrySpec, axes: Mapping[str, int], fixed: Iterable[str] = ()) -> list[GaugeRows]:
    """Find the weights whose rows can all be given unit norm by a rescaling.

    Args:
        spec: symmetries of the model.
        axes: of the weights that are wanted, by name: the axis that counts rows.
        fixed: tensors that may not move.

    Returns:
        Weights in an order in which they can be normalized one after the other.
    """
    exponents = spec.exponents.summed(len(spec))
    free = ~spec.moves(name for name in fixed if name in spec.tensors)
    moving = {name: spec.moves([name]) for name in axes if name in spec.tensors}
    found: dict[str, GaugeRows] = {}
    earlier: dict[str, set[str]] = {}
    for name in moving:
        rows = _rows_of(spec.tensors[name], axes[name], exponents, free)
        if rows is None:
            continue
        rows = GaugeRows(name, axes[name], *rows)
        trial = {other: {*names} for other, names in earlier.items()}
        trial[name] = {other for other, its in found.items() if bool(moving[name][its.generators].any())}
        for other in found:
            if bool(moving[other][rows.generators].any()):
                trial[other].add(name)
        try:
            TopologicalSorter(trial).prepare()
        except CycleError:
            continue
        found[name], earlier = rows, trial
        free[rows.generators] = False
    return [found[name] for name in TopologicalSorter(earlier).static_order()]


def _rows_of(weight: Moved, axis: int, exponents: Sparse, free: Tensor) -> tuple[Tensor, Tensor] | None:
    """By row a generator that scales it and nothing else of its weight, and its exponent; if all have one."""
    if not weight.terms:
        return None
    by_row, whole = _by_row(weight, axis, exponents, len(free))
    alone = free & whole & (torch.bincount(by_row.columns, minlength=len(free)) == 1)
    usable = alone[by_row.columns].nonzero().flatten()
    none = len(by_row.rows)
    first = torch.full((weight.shape[axis],), none).scatter_reduce(0, by_row.rows[usable], usable, "amin")
    if not len(first) or bool((first == none).any()):
        return None
    return by_row.columns[first], by_row.values[first]


def _by_row(weight: Moved, axis: int, exponents: Sparse, generators: int) -> tuple[Sparse, Tensor]:
    """Exponents by row and generator, and which generators scale all entries of every row alike.

    Scales add up along all axes, so what all entries of another axis have in common belongs to the rows.
    """
    size, whole = weight.shape[axis], torch.ones(generators, dtype=torch.bool)
    rows, parts = torch.arange(size), list[Sparse]()
    for term in weight.terms:
        part = _entries(term.reshape(-1), exponents)
        if term.numel() == term.shape[axis] == size:
            parts.append(part)
            continue
        first = torch.zeros(generators, dtype=torch.float64)
        first[part.columns[part.rows == 0]] = part.values[part.rows == 0]
        same = part.chosen((part.values - first[part.columns]).abs() < TINY)
        counts = (torch.bincount(some.columns, minlength=generators) for some in (part, same))
        in_all, alike = counts
        whole &= torch.where(first == 0, in_all == 0, alike == term.numel())
        common = first.nonzero().flatten()
        parts.append(
            Sparse(rows.repeat_interleave(len(common)), common.repeat(size), first[common].repeat(size))
        )
    joined = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return Sparse(*joined).summed(generators), whole


def _entries(ids: Tensor, exponents: Sparse) -> Sparse:
    """Exponents of these scales (-1 is none), by place among them and generator."""
    there = ids.clamp(min=0)
    wanted = torch.zeros(
        int(torch.cat([there, exponents.rows, there.new_zeros(1)]).max()) + 1, dtype=torch.bool
    )
    wanted[ids[ids >= 0]] = True
    places = (ids >= 0).nonzero().flatten()
    of_places = Sparse(places, ids[places], torch.ones(len(places), dtype=torch.float64))
    return product(of_places, exponents.chosen(wanted[exponents.rows]), len(wanted))


@torch.no_grad()
@on_cpu
def unit_norm_element(
    spec: SymmetrySpec, tensors: Mapping[str, Tensor], weights: Iterable[GaugeRows]
) -> Tensor:
    """The element that gives the rows of these weights unit norm.

    Args:
        spec: the group.
        tensors: of the model, by name.
        weights: what :func:`gauge_rows` found.

    Returns:
        Log-scales, one per generator; zero for rows that have unit norm.

    Raises:
        ZeroFilterError: a row is zero, or not finite.
    """
    element = torch.zeros(len(spec), dtype=torch.float64)
    for name, axis, generators, exponents in weights:
        weight, over = tensors[name].detach().cpu(), filter_axes(tensors[name].ndim, axis)
        if bool(lacks_direction(weight, over).any()):
            raise ZeroFilterError(
                f"'{name}' has rows that are zero, not finite, or too small or large to square: initialize "
                "the model first"
            )
        now = weight.double() * spec.log_scales(element, [name])[name].exp()
        lengths = norm(now, over).flatten()
        is_unit = has_unit_norm(now.to(weight.dtype), over).flatten()
        element[generators] -= torch.where(is_unit, 0.0, lengths.log() / exponents)
    return element
