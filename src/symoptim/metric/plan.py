r"""In which order the sizes of units are read off the weights.

Every generator of the group moves some unit, and the unit's size has to be read off weights that move with it
and with nothing else that is not known yet. So generators are peeled: at first only the inputs of the network
are known, then rows of the first layer can be read, then those of the second, whose columns are known now.

    first choice       weights coming in (exponent > 0), a norm over more than one entry; with their biases
    where there are    none: entries coming in (gain and shift of a normalization)
    when stuck         weights going out, then single entries; one tensor at a time

A bias alone is a bad measure though the easiest to peel: it is often zero, and tells nothing of the weights.
A bias is an entry of a tensor that is named one, or an entry that moves with its unit alone where its module
has something that also moves with what the unit reads, a matrix or the lengths of its rows (the g of a weight
normalization). Biases are only read beside other entries; a unit of which everything else is zero keeps size
one and counts as unmeasured. Other single entries wait for the matrix of their unit as long as anything else
can be done.

Blocks that are all zero when the plan is made measure nothing, ever after. Generators that tie several rows
have the mean over those of one level.

Where every weight that is left moves with two unknown generators or more, their combination is read and takes
the place of one of them (:mod:`.basis`).
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.metric.basis import together
from symoptim.metric.levels import Level, Positions, level_of, positions_of
from symoptim.metric.term_layout import Layout
from symoptim.symmetry.sparse import Sparse, product


class Plan(NamedTuple):
    """Levels in order, and how the generators of the group are made of those that are read."""

    levels: tuple[Level, ...]
    basis: Sparse | None
    """Generator of the group, generator that is read, coefficient; none if they are the same."""


def plan_of(layout: Layout, weights: Mapping[str, Tensor], alive: Tensor, *, direction: int = 1) -> Plan:
    """Peel all generators.

    Args:
        layout: the tensors that may be measured.
        weights: by name; only their shapes are looked at, and whether they are parameters.
        alive: positions that have anything but zeros.
        direction: 1 for sizes of what comes in, -1 for sizes of what goes out.

    Returns:
        The plan; generators that move nothing but zeros are in none of its levels.
    """
    about = positions_of(layout, weights)
    biases = _biases(layout.exponents, about)
    measuring = alive & ~biases
    # What moves nothing but zeros needs no size, and must not keep others waiting for one.
    known = torch.ones(layout.generators, dtype=torch.bool)
    known[layout.exponents.columns[alive[layout.exponents.rows]]] = False
    levels: list[Level] = []
    basis: Sparse | None = None
    while True:
        unknown = layout.exponents.chosen(~known[layout.exponents.columns])
        single = _single(unknown, _others_known(layout, unknown))
        if bool(measuring[single.rows].any()):
            measures = _chosen(layout, about, measuring, single, direction)
        else:
            measures, change = together(layout, unknown, about, measuring)
            if not len(measures.rows):
                left = single.columns[alive[single.rows]]  # of biases: others must not wait for them
                if not len(left):
                    return Plan(tuple(levels), basis)
                known[left] = True
                continue
            if change is not None:
                layout = layout._replace(exponents=_product(layout.exponents, change, layout.generators))
                basis = change if basis is None else _product(basis, change, layout.generators)
        levels.append(level_of(layout, about, measures))
        known[levels[-1].generators] = True


def _single(unknown: Sparse, ready: Tensor) -> Sparse:
    """Positions that are ready and move with one unknown generator."""
    count = torch.bincount(unknown.rows, minlength=len(ready))
    return unknown.chosen((ready & (count == 1))[unknown.rows])


def _product(left: Sparse, right: Sparse, size: int) -> Sparse:
    return product(left, right, size).summed(size)


RANKS = torch.tensor([[0, 0, 1, 2, 4], [0, 2, 1, 3, 4]], device="cpu")
"""Order of preference for units without and with a matrix coming in, of: coming in as a norm, as an entry;
going out as a norm, as an entry; a buffer."""


def _chosen(layout: Layout, about: Positions, measuring: Tensor, single: Sparse, direction: int) -> Sparse:
    """Of the positions that measure a generator, those that are read: the best, with biases beside them."""
    with_matrix = torch.zeros(layout.generators, dtype=torch.bool)
    matrices = measuring[layout.exponents.rows] & (_kinds(layout.exponents, about, direction) == 0)
    with_matrix[layout.exponents.columns[matrices]] = True
    kind, there = _kinds(single, about, direction), measuring[single.rows]
    ranks = torch.where(there, RANKS[with_matrix[single.columns].long(), kind], len(RANKS[0]))
    best = ranks == ranks.min()
    if int(ranks.min()) > 0:  # nothing is as it should be: no more than one tensor at a time
        best &= about.tensor[single.rows] == about.tensor[single.rows[best]].min()
    # Single entries that come in beside the chosen ones are biases of the same module; one that is zero now
    # adds nothing, and will not be left out when it has grown.
    key = about.module[single.rows] * layout.generators + single.columns
    biases = (kind == 1) & torch.isin(key, key[best & (kind < 2)])
    return single.chosen(best | biases)


def _biases(exponents: Sparse, about: Positions) -> Tensor:
    """Which positions are those of biases, by name or by what else moves; zeros do not matter."""
    alone = torch.bincount(exponents.rows, minlength=len(about.fan))[exponents.rows] == 1
    entry = alone & (about.fan[exponents.rows] == 1)
    generators = int(exponents.columns.max()) + 1 if len(exponents.columns) else 0
    unit = (about.module[exponents.rows] * generators + exponents.columns) * 2 + (exponents.values > 0)
    weights = ~entry & ~about.buffer[exponents.rows]
    biases = about.bias & (about.fan == 1)
    biases[exponents.rows[entry & torch.isin(unit, unit[weights])]] = True
    # A bias that is subtracted again moves with nothing else, and may as well be measured by itself.
    others = exponents.columns[~biases[exponents.rows]]
    beside = torch.zeros_like(biases)
    beside[exponents.rows[torch.isin(exponents.columns, others)]] = True
    return biases & beside


def _kinds(exponents: Sparse, about: Positions, direction: int) -> Tensor:
    """Columns of the table of ranks."""
    kind = 2 * (direction * exponents.values < 0) + (about.fan[exponents.rows] == 1)
    return torch.where(about.buffer[exponents.rows], 4, kind)


def _others_known(layout: Layout, unknown: Sparse) -> Tensor:
    """Positions of a term at which all other terms of its tensor are known, at every entry."""
    known = torch.bincount(unknown.rows, minlength=layout.positions) == 0
    fine = torch.ones(layout.positions, dtype=torch.bool)
    for terms in layout.terms.values():
        for term, other in itertools.permutations(terms, 2):
            there = term.seen_by(other.of(known), torch.all)
            fine[term.start : term.stop] &= there.broadcast_to(term.shape).reshape(-1)
    return fine
