"""Sums of exponentials along a group, with the derivatives that Newton's method needs.

    F(l) = sum_e w_e / p,   F'(l) = B^T w,   F''(l) = p B^T diag(w) B,   w_e = v_e exp(p (B l)_e)

B has a row per entry of the model and a column per generator, and is never formed. The log-scale ``(B l)_e``
of an entry is a sum of terms, of its row and of its column. Along an axis that no term varies along (the
taps of a convolution, a classifier's pinned rows) entries move alike, so sums of v over it are all that is
needed. What is left of a tensor is a matrix with a factor per row and one per column, and products with ``B``
and its transpose are products of that matrix with small vectors.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.sparse import Sparse, product
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import first_places, squeezed, unique_values

GENERATORS_AT_ONCE = 256
"""In :func:`curvature_diagonal`: what bounds its memory."""


class Term(NamedTuple):
    """Numbers of scales, and letters of the axes they vary along."""

    scales: Tensor
    axes: str


class EntrySums(NamedTuple):
    """Sums of a tensor's entries, one per combination of scales, and the terms of their log-scales."""

    values: Tensor
    axes: str
    terms: tuple[Term, ...]


def moving_terms(spec: SymmetrySpec, names: Iterable[str]) -> dict[str, list[Tensor]]:
    """Terms of log-scales that an element can change, of size 1 where they do not vary; by tensor.

    Args:
        spec: the group.
        names: of tensors; those that no element moves are left out.

    Returns:
        Numbers of scales, broadcastable to the tensor's shape.

    >>> from symoptim.symmetry.discover import discover
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> spec = discover(model, (torch.rand(5, 3),))
    >>> terms = moving_terms(spec, spec.tensors)
    >>> {name: [tuple(term.shape) for term in terms[name]] for name in terms}
    {'0.weight': [(4, 1)], '0.bias': [(4,)], '2.weight': [(1, 1), (1, 4)]}
    """
    same = _representatives(spec)
    found: dict[str, list[Tensor]] = {}
    for name in names:
        every = (squeezed(same[term]) for term in spec.tensors[name].terms)
        terms = [term for term in every if bool((term >= 0).any())]
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


def entry_sums(values: Tensor, terms: Sequence[Tensor]) -> EntrySums:
    """Numbers of entries, summed over the axes that no term varies along.

    Args:
        values: of a tensor's shape.
        terms: numbers of scales, broadcastable to it.

    Returns:
        The sums.
    """
    used = [axis for axis in range(values.dim()) if any(term.shape[axis] > 1 for term in terms)]
    unused = [axis for axis in range(values.dim()) if axis not in used]
    summed = values.sum(dim=unused) if unused else values
    letters = dict(zip(used, string.ascii_letters, strict=False))
    named = (
        Term(term.squeeze(), "".join(letters[axis] for axis in used if term.shape[axis] > 1))
        for term in terms
    )
    return EntrySums(summed, "".join(letters.values()), tuple(named))


def merge_single_terms(sums: Iterable[EntrySums], scales: int) -> list[EntrySums]:
    """The same sums, those with a single term added up to one: a number per scale."""
    totals = torch.zeros(scales + 1, dtype=torch.float64)
    found: list[EntrySums] = []
    for one in sums:
        if len(one.terms) == 1:
            add_to_scales(totals, one.terms[0], one.values)
        else:
            found.append(one)
    ids = totals.nonzero().flatten()
    return [EntrySums(totals[ids], "a", (Term(ids, "a"),)), *found] if len(ids) else found


def add_to_scales(totals: Tensor, term: Term, values: Tensor) -> None:
    """Add numbers to the totals of their scales; the last total is of none."""
    totals.index_add_(0, term.scales.reshape(-1) % len(totals), values.reshape(-1))


def marginals(sums: EntrySums, factors: Sequence[Tensor]) -> list[Tensor]:
    """For every term, values times all factors, summed to the term's own axes.

    >>> rows, columns = Term(torch.tensor([0, 1]), "a"), Term(torch.tensor([2, 3]), "b")
    >>> sums = EntrySums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "ab", (rows, columns))
    >>> marginals(sums, [torch.tensor([1.0, 10.0]), torch.tensor([1.0, 2.0])])
    [tensor([  5., 110.]), tensor([31., 84.])]
    """
    return [
        factors[number] * _contract(sums, _others(factors, number), term.axes)
        for number, term in enumerate(sums.terms)
    ]


def _others(factors: Sequence[Tensor], number: int) -> dict[int, Tensor]:
    return {other: factor for other, factor in enumerate(factors) if other != number}


def _contract(sums: EntrySums, vectors: Mapping[int, Tensor], axes: str) -> Tensor:
    """Values times a vector for each of these terms, summed over all other axes than ``axes``."""
    letters = ",".join([sums.axes, *(sums.terms[number].axes for number in vectors)])
    return torch.einsum(f"{letters}->{axes}", sums.values, *vectors.values())


class ExponentialSum:
    """F at one element: its weights w, and products with its derivatives."""

    def __init__(self, spec: SymmetrySpec, sums: Sequence[EntrySums], element: Tensor, power: float) -> None:
        """Compute the weights, added up per term.

        Args:
            spec: the group.
            sums: the numbers v.
            element: l, one number per generator.
            power: p.
        """
        self.spec, self.sums = spec, sums
        scales = spec.by_scale(element)
        self.factors = [[(power * scales[term.scales]).exp() for term in one.terms] for one in sums]
        self.marginals = [marginals(one, factors) for one, factors in zip(sums, self.factors, strict=True)]

    def per_scale(self) -> Tensor:
        """Weights added up for every scale; the last is of none."""
        totals = torch.zeros(self.spec.scales + 1, dtype=torch.float64)
        for one, found in zip(self.sums, self.marginals, strict=True):
            for term, marginal in zip(one.terms, found, strict=True):
                add_to_scales(totals, term, marginal)
        return totals

    def gradient(self) -> Tensor:
        """``B^T w``, one number per generator."""
        return self.spec.by_generator(self.per_scale())

    def curvature(self, direction: Tensor) -> Tensor:
        """``B^T diag(w) B direction``."""
        scales = self.spec.by_scale(direction)
        totals = torch.zeros_like(scales)
        for one, factors, found in zip(self.sums, self.factors, self.marginals, strict=True):
            changes = [scales[term.scales] for term in one.terms]
            for number, term in enumerate(one.terms):
                change = found[number] * changes[number]
                if len(one.terms) > 1:
                    change = change + _change_by_others(one, factors, changes, number)
                add_to_scales(totals, term, change)
        return self.spec.by_generator(totals)


def _change_by_others(
    sums: EntrySums, factors: Sequence[Tensor], changes: Sequence[Tensor], number: int
) -> Tensor:
    """How a term's marginal changes with the log-factors of the other terms, to first order."""
    total = torch.zeros_like(factors[number])
    others = _others(factors, number)
    for other in others:
        moved = {**others, other: factors[other] * changes[other]}
        total += _contract(sums, moved, sums.terms[number].axes)
    return factors[number] * total


def absolute_charges(spec: SymmetrySpec, totals: Tensor, power: int = 1) -> Tensor:
    """Numbers of scales added up for every generator, times the power of absolute exponents."""
    values = spec.exponents.values.abs() ** power * totals[spec.exponents.rows]
    return torch.zeros(len(spec), dtype=torch.float64).index_add_(0, spec.exponents.columns, values)


def curvature_diagonal(at_rest: ExponentialSum) -> Tensor:
    """The diagonal of ``B^T diag(v) B``, one number per generator; v from a sum :func:`at_identity`.

    A column's scale is often written as that of all rows, less those of the other columns. So a generator may
    have a part in two terms of one entry, and these can cancel: without their product this is far too large.
    """
    spec = at_rest.spec
    found = absolute_charges(spec, at_rest.per_scale(), 2)
    for one in (one for one in at_rest.sums if len(one.terms) > 1):
        parts = [_exponents(spec, term) for term in one.terms]
        for first in range(len(parts)):
            for second in range(first):
                _add_twice_the_product(found, one, (first, second), (parts[first], parts[second]))
    return found


def at_identity(spec: SymmetrySpec, sums: Sequence[EntrySums]) -> ExponentialSum:
    """The sum where no entry is moved: weights are the numbers v."""
    return ExponentialSum(spec, sums, torch.zeros(len(spec), dtype=torch.float64), 0.0)


def _exponents(spec: SymmetrySpec, term: Term) -> Sparse:
    """Exponents of a term's numbers, by position in it and generator."""
    ids = term.scales.reshape(-1)
    positions = (ids >= 0).nonzero().flatten()
    chosen = Sparse(positions, ids[positions], torch.ones(len(positions), dtype=torch.float64))
    mine = torch.zeros(spec.scales, dtype=torch.bool)
    mine[chosen.columns] = True
    return product(chosen, spec.exponents.chosen(mine[spec.exponents.rows]), spec.scales)


def _add_twice_the_product(
    found: Tensor, sums: EntrySums, numbers: tuple[int, int], parts: tuple[Sparse, Sparse]
) -> None:
    """Add, for generators that have a part in both terms, twice the sum over entries of v times both."""
    both = torch.zeros((2, len(found)), dtype=torch.bool)
    for part, mask in zip(parts, both, strict=True):
        mask[part.columns] = True
    all_shared = both.all(dim=0).nonzero().flatten()
    for begin in range(0, len(all_shared), GENERATORS_AT_ONCE):
        shared = all_shared[begin : begin + GENERATORS_AT_ONCE]
        one, other = (
            _dense(part, shared, len(found), sums.terms[number].scales)
            for part, number in zip(parts, numbers, strict=True)
        )
        axes = [sums.terms[number].axes for number in numbers]
        moved = torch.einsum(f"{sums.axes},{axes[1]}Z->{axes[0]}Z", sums.values, other)
        found[shared] += 2 * (moved * one).reshape(-1, len(shared)).sum(dim=0)


def _dense(part: Sparse, generators: Tensor, count: int, like: Tensor) -> Tensor:
    """Exponents of a few generators, of the shape of a term with an axis of generators behind."""
    column = torch.full((count,), -1)
    column[generators] = torch.arange(len(generators))
    chosen = part.chosen(column[part.columns] >= 0)
    dense = torch.zeros((like.numel(), len(generators)), dtype=torch.float64)
    dense[chosen.rows, column[chosen.columns]] = chosen.values
    return dense.reshape(*like.shape, len(generators))


def largest_change(spec: SymmetrySpec, sums: Sequence[EntrySums], step: Tensor) -> float:
    """A bound on how far a step moves the log-scale of any entry."""
    scales = spec.by_scale(step)
    changes = ([scales[term.scales] for term in one.terms] for one in sums)
    return max(
        (sum(float((sign * change).max()) for change in terms) for terms in changes for sign in (1, -1)),
        default=0.0,
    )
