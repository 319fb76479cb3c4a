"""Sums of exponentials along a group, with the derivatives that Newton's method needs.

    F(l) = sum_e w_e / p,   F'(l) = B^T w,   F''(l) = p B^T diag(w) B,   w_e = v_e exp(p (B l)_e)

B has a row per entry of the model and a column per generator, and is never formed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from symoptim.applications.blocks import AxisScales, Block, add_at, marginals, varied
from symoptim.symmetry.sparse import Sparse, product
from symoptim.symmetry.spec import SymmetrySpec


class Weighted:
    """Entries with their weights w at one element."""

    def __init__(self, spec: SymmetrySpec, blocks: Sequence[Block], element: Tensor, power: float) -> None:
        """Compute the weights, added up per scale.

        Args:
            spec: the group.
            blocks: the numbers v.
            element: l, one number per generator.
            power: p.
        """
        self.spec, self.blocks = spec, blocks
        scales = spec.by_scale(element)
        self.factors = [[(power * scales[term.scales]).exp() for term in block.terms] for block in blocks]
        self.marginals = [
            marginals(block, factors) for block, factors in zip(blocks, self.factors, strict=True)
        ]

    def per_scale(self) -> Tensor:
        """Weights added up for every scale; the last is of none."""
        totals = torch.zeros(self.spec.scales + 1, dtype=torch.float64)
        for block, found in zip(self.blocks, self.marginals, strict=True):
            for term, marginal in zip(block.terms, found, strict=True):
                add_at(totals, term, marginal)
        return totals

    def charges(self) -> Tensor:
        """``B^T w``, one number per generator."""
        return self.spec.by_generator(self.per_scale())

    def curvature(self, direction: Tensor) -> Tensor:
        """``B^T diag(w) B direction``."""
        scales = self.spec.by_scale(direction)
        totals = torch.zeros_like(scales)
        for block, factors, found in zip(self.blocks, self.factors, self.marginals, strict=True):
            changes = [scales[term.scales] for term in block.terms]
            for number, term in enumerate(block.terms):
                own = found[number] * changes[number]
                others = varied(block, factors, changes, number) if len(block.terms) > 1 else 0.0
                add_at(totals, term, own + others)
        return self.spec.by_generator(totals)


def of_sizes(spec: SymmetrySpec, totals: Tensor, power: int = 1) -> Tensor:
    """Numbers of scales added up for every generator, times exponents without their sign to a power."""
    values = spec.exponents.values.abs() ** power * totals[spec.exponents.rows]
    return torch.zeros(len(spec), dtype=torch.float64).index_add_(0, spec.exponents.columns, values)


def diagonal(at_rest: Weighted) -> Tensor:
    """The diagonal of ``B^T diag(v) B``.

    A column's scale is often written as that of all rows, less those of the other columns. So a generator may
    have a part in two terms of one entry, and these can cancel: without their product this is far too large.

    Args:
        at_rest: the numbers v, that is, weights at the identity.

    Returns:
        One number per generator.
    """
    spec = at_rest.spec
    found = of_sizes(spec, at_rest.per_scale(), 2)
    for block in (block for block in at_rest.blocks if len(block.terms) > 1):
        parts = [_exponents(spec, term) for term in block.terms]
        for one in range(len(parts)):
            for other in range(one):
                _add_twice_the_product(found, block, (one, other), (parts[one], parts[other]))
    return found


def _exponents(spec: SymmetrySpec, term: AxisScales) -> Sparse:
    """Exponents of a term's numbers, by place in it and generator."""
    ids = term.scales.reshape(-1)
    places = (ids >= 0).nonzero().flatten()
    chosen = Sparse(places, ids[places], torch.ones(len(places), dtype=torch.float64))
    mine = torch.zeros(spec.scales, dtype=torch.bool)
    mine[chosen.columns] = True
    return product(chosen, spec.exponents.chosen(mine[spec.exponents.rows]), spec.scales)


def _add_twice_the_product(
    found: Tensor, block: Block, numbers: tuple[int, int], parts: tuple[Sparse, Sparse]
) -> None:
    """Add, for generators that have a part in both terms, twice the sum over entries of v times both."""
    both = torch.zeros((2, len(found)), dtype=torch.bool)
    for part, mask in zip(parts, both, strict=True):
        mask[part.columns] = True
    all_shared = both.all(dim=0).nonzero().flatten()
    for begin in range(0, len(all_shared), CHUNK):
        shared = all_shared[begin : begin + CHUNK]
        one, other = (
            _dense(part, shared, len(found), block.terms[number].scales)
            for part, number in zip(parts, numbers, strict=True)
        )
        axes = [block.terms[number].axes for number in numbers]
        moved = torch.einsum(f"{block.axes},{axes[1]}Z->{axes[0]}Z", block.values, other)
        found[shared] += 2 * (moved * one).reshape(-1, len(shared)).sum(dim=0)


CHUNK = 256
"""Generators looked at together: what bounds the memory."""


def _dense(part: Sparse, generators: Tensor, count: int, like: Tensor) -> Tensor:
    """Exponents of a few generators, of the shape of a term with an axis of generators behind."""
    column = torch.full((count,), -1)
    column[generators] = torch.arange(len(generators))
    chosen = part.chosen(column[part.columns] >= 0)
    dense = torch.zeros((like.numel(), len(generators)), dtype=torch.float64)
    dense[chosen.rows, column[chosen.columns]] = chosen.values
    return dense.reshape(*like.shape, len(generators))


def reach(spec: SymmetrySpec, blocks: Sequence[Block], step: Tensor) -> float:
    """A bound on how far a step moves the log-scale of any entry."""
    scales = spec.by_scale(step)
    return max((_furthest(block, scales) for block in blocks), default=0.0)


def _furthest(block: Block, scales: Tensor) -> float:
    """Largest sum of terms, of one sign or the other."""
    terms = [scales[term.scales] for term in block.terms]
    return max(sum(float((sign * term).max()) for term in terms) for sign in (1, -1))
