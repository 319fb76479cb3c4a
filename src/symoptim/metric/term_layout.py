"""The group as the metric needs it: of every tensor a row's part and a column's part, as small as can be.

A spec writes the log-scale of an entry as a sum of terms, and a constant may be moved from one term to
another: W[o, k] that moves by l_o - l_k may be written as (l_o - l_0) + (l_0 - l_k). Here constants are where
they make the fewest exponents, so that rows know rows and columns know columns.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.sparse import TINY, Sparse
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import unique_values


class Term(NamedTuple):
    """Where the log-scales of a term are, ``start`` to ``stop`` of all, and a shape that broadcasts."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """One past the last."""
        return self.start + torch.Size(self.shape).numel()

    @property
    def summed(self) -> list[int]:
        """Axes it does not vary along."""
        return [axis for axis, size in enumerate(self.shape) if size == 1]

    def seen_by(self, values: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
        """Values of a tensor's shape reduced (``torch.any``, say) over all entries of every position."""
        # Without axes some reductions of torch take all, others none.
        return reduce(values, dim=self.summed, keepdim=True) if self.summed else values

    def of(self, values: Tensor) -> Tensor:
        """This term's part of the values of all."""
        return values[self.start : self.stop].reshape(self.shape)


class Layout(NamedTuple):
    """Terms by tensor, and the exponents of their log-scales: one row per position of a term."""

    terms: Mapping[str, tuple[Term, ...]]
    exponents: Sparse
    """Position, generator, exponent."""
    positions: int
    generators: int


def layout_of(spec: SymmetrySpec, names: Iterable[str]) -> Layout:
    """Lay out the tensors of these names; terms that never move are left out.

    Args:
        spec: a group.
        names: of its tensors.

    Returns:
        The layout.
    """
    terms: dict[str, tuple[Term, ...]] = {}
    pieces: list[Sparse] = []
    starts = torch.searchsorted(spec.exponents.rows, torch.arange(spec.scales + 1))
    start = 0
    for name in names:
        found: list[Term] = []
        shapes = [tuple(term.shape) for term in spec.tensors[name].terms]
        for shape, exponents in zip(shapes, _sparse_terms(spec, name, starts), strict=True):
            if len(exponents.rows):
                found.append(Term(start, shape))
                pieces.append(exponents._replace(rows=exponents.rows + start))
                start = found[-1].stop
        terms[name] = tuple(found)
    return Layout(terms, _stacked(pieces), start, len(spec))


def _stacked(pieces: list[Sparse]) -> Sparse:
    """Entries of all pieces."""
    if not pieces:
        nothing = torch.zeros(0, dtype=torch.long)
        return Sparse(nothing, nothing, torch.zeros(0, dtype=torch.float64))
    rows, columns, values = zip(*pieces, strict=True)
    return Sparse(torch.cat(rows), torch.cat(columns), torch.cat(values))


def _sparse_terms(spec: SymmetrySpec, name: str, starts: Tensor) -> list[Sparse]:
    """Exponents of every term of a tensor by position, constants moved to where they cost least."""
    terms = [_by_position(spec, term, starts) for term in spec.tensors[name].terms]
    sizes = [term.numel() for term in spec.tensors[name].terms]
    for other in range(1, len(terms)):
        moved = _cheapest_shift(terms[0], sizes[0], terms[other], sizes[other], len(spec))
        terms[0] = _shifted(terms[0], sizes[0], moved)
        terms[other] = _shifted(terms[other], sizes[other], -moved)
    return terms


def _by_position(spec: SymmetrySpec, term: Tensor, starts: Tensor) -> Sparse:
    """Exponents of a term: those of the scale at every position; scales have theirs from ``starts`` on."""
    ids = term.reshape(-1)
    some = ids.clamp(min=0)
    counts = (
        torch.where(ids >= 0, starts[some + 1] - starts[some], 0) if spec.scales else torch.zeros_like(ids)
    )
    position = torch.repeat_interleave(torch.arange(len(ids)), counts)
    within = torch.arange(len(position)) - (counts.cumsum(0) - counts)[position]
    entry = starts[some[position]] + within
    return Sparse(position, spec.exponents.columns[entry], spec.exponents.values[entry])


def _cheapest_shift(
    first: Sparse, first_size: int, other: Sparse, other_size: int, generators: int
) -> Tensor:
    """What to move to the first term from the other, per generator, so that the fewest exponents are left."""
    nothing = torch.zeros(generators, dtype=torch.float64)
    best, least = nothing, _left_over(first, first_size, nothing) + _left_over(other, other_size, nothing)
    for moved in (_most_frequent(other, generators), -_most_frequent(first, generators)):
        left = _left_over(first, first_size, -moved) + _left_over(other, other_size, moved)
        best, least = torch.where(left < least, moved, best), torch.minimum(left, least)
    return best


def _most_frequent(term: Sparse, generators: int) -> Tensor:
    """The exponent that most positions with one have, for every generator; zero where none has any."""
    if not len(term.rows):
        return torch.zeros(generators, dtype=torch.float64)
    values, which = unique_values(term.values)
    keys, entries = unique_values(term.columns * len(values) + which)
    score = torch.bincount(entries) * len(values) + keys % len(values)
    best = torch.full((generators,), -1).scatter_reduce_(0, keys // len(values), score, "amax")
    return torch.where(best >= 0, values[best % len(values)], 0.0)


def _left_over(term: Sparse, size: int, constant: Tensor) -> Tensor:
    """How many positions keep an exponent, per generator, when the constant is taken away from all."""
    there = torch.bincount(term.columns, minlength=len(constant))
    alike = (term.values - constant[term.columns]).abs() < TINY
    gone = torch.bincount(term.columns[alike], minlength=len(constant))
    return torch.where(constant == 0, there, size - gone)


def _shifted(term: Sparse, size: int, constant: Tensor) -> Sparse:
    """A constant per generator added at every position."""
    chosen = constant.nonzero().flatten()
    rows = torch.arange(size).repeat_interleave(len(chosen))
    added = Sparse(rows, chosen.repeat(size), constant[chosen].repeat(size))
    return _stacked([term, added]).summed(len(constant))
