"""Sizes that can be read at once: which norms are taken, and how they make up the size of a unit."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from symoptim.metric.term_layout import Layout, Term
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.tensors import first_places, unique_rows, unique_values


class Reading(NamedTuple):
    """A term of a tensor whose norms are taken, the other terms divided out."""

    tensor: str
    own: Term
    others: tuple[Term, ...]


class Level(NamedTuple):
    """Sizes that can be read at once: n norms that make up the sizes of m units."""

    readings: tuple[Reading, ...]
    """Where norms are taken, of every position of a term."""
    chosen: Tensor
    """Which of all these norms are used, ``(n,)``."""
    positions: Tensor
    """Their positions in the layout, ``(n,)``."""
    unit: Tensor
    """The unit each belongs to, a number below m, ``(n,)``."""
    weight: Tensor
    """One over the number of rows of each unit, ``(m,)``."""
    generators: Tensor
    """The generator that moves each unit, ``(m,)``."""
    exponents: Tensor
    """The power of it that the norms move by, ``(m,)``."""
    resolved: Sparse
    """Exponents of all positions in these generators: what becomes known."""


class Positions(NamedTuple):
    """Of every position: its tensor and module, how many entries it has, what kind of tensor it is of."""

    tensor: Tensor
    module: Tensor
    fan: Tensor
    buffer: Tensor
    """Whether it is no parameter."""
    bias: Tensor
    """Whether its name says that it is a bias: ``bias``, ``in_proj_bias``, ``bias_ih_l0``."""


def positions_of(layout: Layout, weights: Mapping[str, Tensor]) -> Positions:
    """Look at the tensors of a layout: at their names, shapes and kinds, not at their values."""
    modules: dict[str, int] = {}
    tensor, module = (torch.zeros(layout.positions, dtype=torch.long) for _ in range(2))
    fan = torch.ones(layout.positions)
    buffer, bias = (torch.zeros(layout.positions, dtype=torch.bool) for _ in range(2))
    for number, (name, terms) in enumerate(layout.terms.items()):
        for term in terms:
            here = slice(term.start, term.stop)
            tensor[here] = number
            module[here] = modules.setdefault(_module_of(name), len(modules))
            bias[here] = "bias" in name.rpartition(".")[2].split("_")
            buffer[here] = not isinstance(weights[name], nn.Parameter)
            fan[here] = weights[name].numel() / (term.stop - term.start)
    return Positions(tensor, module, fan, buffer, bias)


def _module_of(name: str) -> str:
    """The module a tensor belongs to, what it is computed from by a parametrization included.

    >>> _module_of("0.bias"), _module_of("0.parametrizations.weight.original0")
    ('0', '0')
    """
    if ".parametrizations." in f".{name}":
        return f".{name}".partition(".parametrizations.")[0][1:]
    return name.rpartition(".")[0]


def level_of(layout: Layout, about: Positions, measures: Sparse) -> Level:
    """Write down how generators are read.

    Args:
        layout: the tensors.
        about: what is known of its positions.
        measures: position, the generator it measures, and the exponent it moves with.

    Returns:
        The level.
    """
    generators, unit = unique_values(measures.columns)
    power = measures.values[first_places(unit, len(generators))]
    alike = measures.values == power[unit]
    positions, unit = measures.rows[alike], unit[alike]
    readings = _readings(layout, positions)
    starts = torch.tensor([reading.own.start for reading in readings])
    sizes = torch.tensor([reading.own.stop - reading.own.start for reading in readings])
    which = torch.searchsorted(starts, positions, right=True) - 1
    offsets = sizes.cumsum(0) - sizes
    return Level(
        tuple(readings),
        offsets[which] + positions - starts[which],
        positions,
        unit,
        1 / _rows(about, positions, unit, len(generators)).double(),
        generators,
        power,
        layout.exponents.chosen(torch.isin(layout.exponents.columns, generators)),
    )


def _readings(layout: Layout, positions: Tensor) -> list[Reading]:
    """Terms that hold any of the positions, in order."""
    found: list[Reading] = []
    for name, terms in layout.terms.items():
        for term in terms:
            if bool(((positions >= term.start) & (positions < term.stop)).any()):
                found.append(Reading(name, term, tuple(other for other in terms if other is not term)))
    return found


def _rows(about: Positions, positions: Tensor, unit: Tensor, units: int) -> Tensor:
    """How many rows of each unit there are: tensors of one module have theirs in common."""
    tensors, modules = about.tensor[positions], about.module[positions]
    by_tensor, which = unique_rows(torch.stack([unit, modules, tensors], dim=1))
    counts = torch.bincount(which, minlength=len(by_tensor))
    by_module, which = unique_rows(by_tensor[:, :2])
    most = torch.zeros(len(by_module), dtype=torch.long).scatter_reduce_(0, which, counts, "amax")
    return torch.zeros(units, dtype=torch.long).index_add_(0, by_module[:, 0], most)
