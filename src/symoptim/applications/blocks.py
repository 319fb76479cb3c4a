"""Numbers of a tensor's entries, added up as far as rescalings cannot tell entries apart.

Entry e moves by ``exp((B l)_e)``, with l the element and ``(B l)_e`` a sum of scales: of its row, of its
column. Along an axis that no scale varies along (the taps of a convolution, a classifier's pinned rows)
entries move alike, so sums over it are all that is needed. What is left is a matrix with a factor per row
and one per column, and products with ``B`` and its transpose are products of that matrix with small
vectors.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import first_places, squeezed, unique_values


class AxisScales(NamedTuple):
    """Numbers of scales, and letters of the axes of a block they vary along."""

    scales: Tensor
    axes: str


class Block(NamedTuple):
    """Numbers of a tensor's entries, one per combination of scales, and the terms of their log-scales."""

    values: Tensor
    axes: str
    terms: tuple[AxisScales, ...]


def live_terms(spec: SymmetrySpec, names: Iterable[str]) -> dict[str, list[Tensor]]:
    """Terms of log-scales that an element can change, of size 1 where they do not vary; by tensor.

    Args:
        spec: the group.
        names: of tensors; those that no element moves are left out.

    Returns:
        Numbers of scales, broadcastable to the tensor's shape.

    >>> from symoptim.symmetry.discover import discover
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> spec = discover(model, (torch.rand(5, 3),))
    >>> terms = live_terms(spec, spec.tensors)
    >>> {name: [tuple(term.shape) for term in terms[name]] for name in terms}
    {'0.weight': [(4, 1)], '0.bias': [(4,)], '2.weight': [(1, 1), (1, 4)]}
    """
    same = _representatives(spec)
    found: dict[str, list[Tensor]] = {}
    for name in names:
        kept = (squeezed(same[term]) for term in spec.tensors[name].terms)
        terms = [term for term in kept if bool((term >= 0).any())]
        if terms:
            found[name] = terms
    return found


def _representatives(spec: SymmetrySpec) -> Tensor:
    """For every scale the first that is the same combination of generators; -1 for those that never move."""
    rows, columns, values = spec.exponents.summed(len(spec))
    random = torch.rand(2, len(spec), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # Equal combinations give equal sums to the last bit, for they are added up in the same order.
    prints = [torch.zeros(spec.scales + 1, dtype=torch.float64) for _ in random]
    for total, numbers in zip(prints, random, strict=True):
        total.index_add_(0, rows, values * numbers[columns])
    keys = [unique_values(total)[1] for total in prints]
    different, which = unique_values(keys[0] * (spec.scales + 1) + keys[1])
    first = first_places(which, len(different))[which]
    moving = torch.zeros(spec.scales + 1, dtype=torch.bool)
    moving[rows] = True
    return torch.where(moving, first, -1)


def block_of(values: Tensor, terms: Sequence[Tensor]) -> Block:
    """Numbers of entries, summed over the axes no term varies along.

    Args:
        values: of a tensor's shape.
        terms: numbers of scales, broadcastable to it.

    Returns:
        The block.
    """
    used = [axis for axis in range(values.dim()) if any(term.shape[axis] > 1 for term in terms)]
    unused = [axis for axis in range(values.dim()) if axis not in used]
    summed = values.sum(dim=unused) if unused else values
    letters = dict(zip(used, string.ascii_letters, strict=False))
    named = (
        AxisScales(term.squeeze(), "".join(letters[axis] for axis in used if term.shape[axis] > 1))
        for term in terms
    )
    return Block(summed, "".join(letters.values()), tuple(named))


def merged(blocks: Iterable[Block], scales: int) -> list[Block]:
    """The same blocks, those with a single term added up to one: a number per scale."""
    totals = torch.zeros(scales + 1, dtype=torch.float64)
    found: list[Block] = []
    for block in blocks:
        match block.terms:
            case (term,):
                add_at(totals, term, block.values)
            case _:
                found.append(block)
    ids = totals.nonzero().flatten()
    return [Block(totals[ids], "a", (AxisScales(ids, "a"),)), *found] if len(ids) else found


def add_at(totals: Tensor, term: AxisScales, values: Tensor) -> None:
    """Add numbers to the totals of their scales; the last total is of none."""
    totals.index_add_(0, term.scales.reshape(-1) % len(totals), values.reshape(-1))


def contracted(block: Block, vectors: Mapping[int, Tensor], kept: str) -> Tensor:
    """Values times a vector for each of these terms, summed over all axes but those kept."""
    letters = ",".join([block.axes, *(block.terms[number].axes for number in vectors)])
    return torch.einsum(f"{letters}->{kept}", block.values, *vectors.values())


def marginals(block: Block, factors: Sequence[Tensor]) -> list[Tensor]:
    """For every term, values times all factors, summed to the term's own axes.

    >>> rows, columns = AxisScales(torch.tensor([0, 1]), "a"), AxisScales(torch.tensor([2, 3]), "b")
    >>> block = Block(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "ab", (rows, columns))
    >>> marginals(block, [torch.tensor([1.0, 10.0]), torch.tensor([1.0, 2.0])])
    [tensor([  5., 110.]), tensor([31., 84.])]
    """
    return [
        factors[number] * contracted(block, _others(factors, number), term.axes)
        for number, term in enumerate(block.terms)
    ]


def _others(factors: Sequence[Tensor], number: int) -> dict[int, Tensor]:
    return {other: factor for other, factor in enumerate(factors) if other != number}


def varied(block: Block, factors: Sequence[Tensor], changes: Sequence[Tensor], number: int) -> Tensor:
    """How a term's marginal changes with the log-factors of the other terms, to first order."""
    term = block.terms[number]
    total = torch.zeros_like(factors[number])
    for other in range(len(factors)):
        if other != number:
            moved = {**_others(factors, number), other: factors[other] * changes[other]}
            total += contracted(block, moved, term.axes)
    return factors[number] * total
