r"""What weights measure together, when none of them measures a generator alone.

An entry that moves by :math:`a_1 l_1 + a_2 l_2 + \dots` cannot measure :math:`l_1` while the others are
unknown, but it does measure the sum, which becomes a generator in the place of the first:
:math:`l_1 = (l_1' - a_2 l_2 - \dots) / a_1`. And what all columns have in common, the rows measure along.
"""

import itertools

import torch
from torch import Tensor

from symoptim.metric.levels import Positions
from symoptim.metric.term_layout import Layout
from symoptim.symmetry.sparse import Sparse, product
from symoptim.symmetry.tensors import whole_numbers


def together(
    layout: Layout, unknown: Sparse, about: Positions, alive: Tensor
) -> tuple[Sparse, Sparse | None]:
    """Sums of unknown generators that positions of one tensor measure, as generators.

    Args:
        layout: the tensors.
        unknown: its exponents of unknown generators.
        about: what is known of its positions.
        alive: positions that have anything but zeros.

    Returns:
        Position, new generator and exponent, nothing if there is no such position; and the change of basis:
        old generator, new generator, coefficient. A new generator has the number of one that it is made of.
    """
    sums, ready = _common_parts(layout, unknown)
    count = torch.bincount(sums.rows, minlength=layout.positions)
    usable = (ready & alive & (count > 0)).nonzero().flatten()
    if not len(usable):
        return unknown.chosen(torch.zeros(len(unknown.rows), dtype=torch.bool)), None
    # Matrices first, then the shortest sums, then the first tensor.
    single = ((about.fan == 1) | about.buffer).long()
    rank = ((single * (count.max() + 1) + count) * (about.tensor.max() + 1) + about.tensor)[usable]
    return _separated(sums, usable[rank == rank.min()], layout.generators)


def _common_parts(layout: Layout, unknown: Sparse) -> tuple[Sparse, Tensor]:
    """Exponents with those that all other terms' entries have in common; positions of which that is all."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(2**62, (layout.generators,), generator=generator)
    # Exponents are small fractions; sums of whole numbers that wrap around do not depend on their order.
    marks = torch.zeros(layout.positions, dtype=torch.long).index_add_(
        0, unknown.rows, words[unknown.columns] * (unknown.values * 5040).round().long()
    )
    ready = torch.ones(layout.positions, dtype=torch.bool)
    places = torch.arange(layout.positions)
    pairs = [torch.stack([places, places])]
    for terms in layout.terms.values():
        for term, other in itertools.permutations(terms, 2):
            mark = other.of(marks)
            alike = term.seen_by(mark, torch.amin) == term.seen_by(mark, torch.amax)
            one = term.seen_by(other.of(places), torch.amin)
            here = slice(term.start, term.stop)
            ready[here] &= alike.broadcast_to(term.shape).reshape(-1)
            pairs.append(torch.stack([places[here], one.broadcast_to(term.shape).reshape(-1)]))
    rows, columns = torch.cat(pairs, dim=1).unbind()
    added = Sparse(rows, columns, torch.ones(len(rows), dtype=torch.float64))
    return product(added, unknown, layout.positions).summed(layout.generators), ready


def _separated(sums: Sparse, positions: Tensor, generators: int) -> tuple[Sparse, Sparse]:
    """Make the sums at these positions generators, as long as they have nothing in common."""
    taken: dict[int, int] = {}
    measures: list[tuple[int, int]] = []
    change: list[tuple[int, int, float]] = []
    for position in whole_numbers(positions):
        here = sums.rows == position
        involved = whole_numbers(sums.columns[here])
        first, *others = map(float, sums.values[here])
        if not any(number in taken for number in involved):
            taken |= dict.fromkeys(involved, position)
            change.append((involved[0], involved[0], 1 / first))
            change += [
                (involved[0], n, -value / first) for n, value in zip(involved[1:], others, strict=True)
            ]
            measures.append((position, involved[0]))
        elif _same(sums, position, taken[involved[0]]):
            measures.append((position, involved[0]))
    exchanged = {row for row, _, _ in change}
    change += [(number, number, 1.0) for number in range(generators) if number not in exchanged]
    rows, columns = torch.tensor(measures).unbind(dim=1)
    old, new, values = zip(*change, strict=True)
    return (
        Sparse(rows, columns, torch.ones(len(rows), dtype=torch.float64)),
        Sparse(torch.tensor(old), torch.tensor(new), torch.tensor(values, dtype=torch.float64)),
    )


def _same(sums: Sparse, one: int, other: int) -> bool:
    """Whether two positions measure the same sum."""
    here, there = (sums.chosen(sums.rows == position) for position in (one, other))
    return torch.equal(here.columns, there.columns) and torch.equal(here.values, there.values)
