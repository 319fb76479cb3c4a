r"""In which order the sizes of units are read off the weights.

Every generator of the group moves some unit, and the unit's size has to be read off weights that move with it
and with nothing else that is not known yet. So generators are peeled: at first only the inputs of the network
are known, then rows of the first layer can be read, then those of the second, whose columns are known now.

    first choice       weights coming in (exponent > 0), a norm over more than one entry; with their biases
    where there are    none: entries coming in (gain and shift of a normalization)
    when stuck         weights going out, then single entries; one tensor at a time

A bias alone is a bad measure though the easiest to peel (it is often zero, and tells nothing of the weights),
so a unit waits for its matrix as long as anything else can be done. Blocks that are all zero when the plan is
made measure nothing, ever after. Generators that tie several rows have the mean over those of one level.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from symoptim.metric.layout import Layout, Term
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.tensors import first_places, unique_rows, unique_values


class Reading(NamedTuple):
    """A term of a tensor whose squared norms are taken, the other terms divided out."""

    tensor: str
    own: Term
    others: tuple[Term, ...]


class Level(NamedTuple):
    """Sizes that can be read at once.

    The norms of all readings, one after another, are looked at in ``chosen`` places; each belongs to a
    position of the layout and to the ``unit``-th of the ``generators``, whose mean is taken with ``weight``.
    """

    readings: tuple[Reading, ...]
    chosen: Tensor
    positions: Tensor
    unit: Tensor
    weight: Tensor
    generators: Tensor
    exponents: Tensor
    resolved: Sparse
    """Exponents of positions in the generators of this level: what becomes known."""


def plan_of(
    layout: Layout, weights: Mapping[str, Tensor], alive: Tensor, *, direction: int = 1
) -> list[Level]:
    """Peel all generators that can be.

    Args:
        layout: the tensors that may be measured.
        weights: by name; only their shapes are looked at, and whether they are parameters.
        alive: positions that have anything but zeros.
        direction: 1 for sizes of what comes in, -1 for sizes of what goes out.

    Returns:
        Levels, in order; generators that no weight can measure are in none of them.
    """
    about = _about(layout, weights)
    exponents = layout.exponents
    entry_kind = 2 * (direction * exponents.values < 0) + (about.fan[exponents.rows] == 1)
    entry_kind[about.buffer[exponents.rows]] = 4
    with_matrix = torch.zeros(layout.generators, dtype=torch.bool)
    with_matrix[exponents.columns[alive[exponents.rows] & (entry_kind == 0)]] = True
    known = torch.zeros(layout.generators, dtype=torch.bool)
    levels: list[Level] = []
    while True:
        open_entries = ~known[exponents.columns]
        unknown = torch.bincount(exponents.rows[open_entries], minlength=layout.positions)
        ready = (unknown == 1) & _others_known(layout, unknown == 0)
        readable = (open_entries & ready[exponents.rows]).nonzero().flatten()
        candidates = readable[alive[exponents.rows[readable]]]
        if not len(candidates):
            return levels
        ranks = RANKS[with_matrix[exponents.columns[candidates]].long(), entry_kind[candidates]]
        chosen = _first_choice(candidates, ranks, about.tensor[exponents.rows[candidates]])
        chosen = _with_companions(chosen, readable, layout, about, direction)
        levels.append(_level(layout, about, chosen))
        known[levels[-1].generators] = True


RANKS = torch.tensor([[0, 0, 1, 2, 4], [0, 2, 1, 3, 4]])
"""Order of preference for units without and with a matrix coming in, of: coming in as a norm, as an entry;
going out as a norm, as an entry; a buffer."""


class _About(NamedTuple):
    """Of every position: its tensor and module, how many entries it has, whether it is a buffer's."""

    tensor: Tensor
    module: Tensor
    fan: Tensor
    buffer: Tensor


def _about(layout: Layout, weights: Mapping[str, Tensor]) -> _About:
    modules: dict[str, int] = {}
    tensor, module = (torch.zeros(layout.positions, dtype=torch.long) for _ in range(2))
    fan = torch.ones(layout.positions)
    buffer = torch.zeros(layout.positions, dtype=torch.bool)
    for number, (name, terms) in enumerate(layout.terms.items()):
        for term in terms:
            here = slice(term.start, term.stop)
            tensor[here] = number
            module[here] = modules.setdefault(name.rpartition(".")[0], len(modules))
            buffer[here] = not isinstance(weights[name], nn.Parameter)
            fan[here] = weights[name].numel() / (term.stop - term.start)
    return _About(tensor, module, fan, buffer)


def _others_known(layout: Layout, known: Tensor) -> Tensor:
    """Positions of a term at which all other terms of its tensor are known, at every entry."""
    fine = torch.ones(layout.positions, dtype=torch.bool)
    for terms in layout.terms.values():
        for term in terms:
            for other in terms:
                if other is not term:
                    there = other.of(known)
                    axes = [axis for axis, size in enumerate(term.shape) if size == 1]
                    there = there.all(dim=axes, keepdim=True) if axes else there
                    fine[term.start : term.stop] &= there.broadcast_to(term.shape).reshape(-1)
    return fine


def _first_choice(candidates: Tensor, ranks: Tensor, tensors: Tensor) -> Tensor:
    """All of the first rank; if there is none, those of the best rank in the first tensor that has some."""
    best = ranks == ranks.min()
    if int(ranks.min()) > 0:
        best &= tensors == tensors[best].min()
    return candidates[best]


def _with_companions(
    chosen: Tensor, readable: Tensor, layout: Layout, about: _About, direction: int
) -> Tensor:
    """Add single entries that come in with what was chosen: biases of the same module, zero or not."""
    exponents = layout.exponents
    key = about.module[exponents.rows] * layout.generators + exponents.columns
    entry = (
        (about.fan[exponents.rows] == 1) & (direction * exponents.values > 0) & ~about.buffer[exponents.rows]
    )
    joining = entry[readable] & torch.isin(key[readable], key[chosen])
    return torch.cat([chosen, readable[joining & ~torch.isin(readable, chosen)]])


def _level(layout: Layout, about: _About, chosen: Tensor) -> Level:
    """Write down how the generators of these exponents are read."""
    exponents = layout.exponents
    generators, unit = unique_values(exponents.columns[chosen])
    power = _of_first(exponents.values[chosen], unit, len(generators))
    alike = exponents.values[chosen] == power[unit]
    chosen, unit = chosen[alike], unit[alike]
    positions = exponents.rows[chosen]
    readings = _readings(layout, positions)
    starts = torch.tensor([reading.own.start for reading in readings])
    sizes = torch.tensor([reading.own.stop - reading.own.start for reading in readings])
    which = torch.searchsorted(starts, positions, right=True) - 1
    offsets = sizes.cumsum(0) - sizes
    new = torch.isin(exponents.columns, generators)
    return Level(
        tuple(readings),
        offsets[which] + positions - starts[which],
        positions,
        unit,
        1 / _rows(about, positions, unit, len(generators)).double(),
        generators,
        power,
        exponents.chosen(new),
    )


def _of_first(values: Tensor, unit: Tensor, units: int) -> Tensor:
    return values[first_places(unit, units)]


def _readings(layout: Layout, positions: Tensor) -> list[Reading]:
    """Terms that hold any of the positions, in order."""
    found: list[Reading] = []
    for name, terms in layout.terms.items():
        for term in terms:
            if bool(((positions >= term.start) & (positions < term.stop)).any()):
                found.append(Reading(name, term, tuple(other for other in terms if other is not term)))
    return found


def _rows(about: _About, positions: Tensor, unit: Tensor, units: int) -> Tensor:
    """How many rows of each unit there are: tensors of one module have theirs in common."""
    tensors, modules = about.tensor[positions], about.module[positions]
    by_tensor, which = unique_rows(torch.stack([unit, modules, tensors], dim=1))
    counts = torch.bincount(which, minlength=len(by_tensor))
    by_module, which = unique_rows(by_tensor[:, :2])
    most = torch.zeros(len(by_module), dtype=torch.long).scatter_reduce_(0, which, counts, "amax")
    return torch.zeros(units, dtype=torch.long).index_add_(0, by_module[:, 0], most)
