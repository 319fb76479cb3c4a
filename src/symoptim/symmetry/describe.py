"""A group in words: its generators by kind, and which slices of which tensors each kind moves.

Generators of one place that move the same tensors are of one kind. One of them stands for all: what it does
to every entry is looked at, and slices are named by axis.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.spec import SymmetrySpec


class Slice(NamedTuple):
    """Part of a tensor that moves: along which axis (None for all of it), and by which power of the scale."""

    tensor: str
    axis: int | None
    exponent: float

    def __str__(self) -> str:
        part = {None: "", 0: " rows", 1: " columns"}.get(self.axis, f" slices of axis {self.axis}")
        power = {1.0: "x a", -1.0: "/ a"}.get(self.exponent, f"x a^{self.exponent:g}")
        return f"{self.tensor}{part} {power}"


class KindOfUnit(NamedTuple):
    """Generators of one kind: their place in the model, how many they are, and what each moves."""

    place: str
    number: int
    slices: tuple[Slice, ...]


def kinds(spec: SymmetrySpec) -> list[KindOfUnit]:
    """All kinds of generators, in the order of the model."""
    members: dict[tuple[str, frozenset[str]], list[int]] = {}
    touched = _touched(spec)
    for number, name in enumerate(spec.names):
        place = name.rpartition(" [")[0]
        members.setdefault((place, frozenset(touched[number])), []).append(number)
    return [
        # The last one: the first unit of a layer may be the one others are measured by.
        KindOfUnit(place, len(numbers), tuple(_slices(spec, numbers[-1], touched[numbers[-1]])))
        for (place, _), numbers in members.items()
    ]


def _touched(spec: SymmetrySpec) -> list[list[str]]:
    """Tensors that each generator moves."""
    found: list[list[str]] = [[] for _ in spec.names]
    for name in spec.tensors:
        for number in spec.moves([name]).nonzero().flatten():
            found[int(number)].append(name)
    return found


def _slices(spec: SymmetrySpec, number: int, tensors: list[str]) -> Iterator[Slice]:
    """What one generator does to these tensors; those it only moves back and forth are left out."""
    element = torch.zeros(len(spec), dtype=torch.float64)
    element[number] = 1.0
    for name, log_scale in spec.log_scales(element, tensors).items():
        whole = log_scale.expand(spec.tensors[name].shape)
        moved = whole != 0
        for exponent in torch.tensor(sorted({float(v) for v in whole[moved].reshape(-1)[:MANY]})):
            yield Slice(name, _axis(whole == exponent), float(exponent))


MANY = 100_000  # entries that are looked at for different exponents


def _axis(mask: Tensor) -> int | None:
    """First axis along which only some slices have a part in the mask."""
    for axis in range(mask.dim()):
        others = [other for other in range(mask.dim()) if other != axis]
        if not bool((mask.any(dim=others) if others else mask).all()):
            return axis
    return None


def text_of(spec: SymmetrySpec) -> str:
    """The group as a table, and what was not looked through."""
    lines = [f"{len(spec)} rescalings"]
    rows = [(str(kind.number), kind.place, ", ".join(map(str, kind.slices))) for kind in kinds(spec)]
    width = [max((len(row[k]) for row in rows), default=0) for k in range(2)]
    lines += [f"{count:>{width[0]}}  {place:<{width[1]}}  {moved}" for count, place, moved in rows]
    for title, counts in (
        ("unknown, so pinned", spec.unknown),
        ("pinned by nature", spec.pinned),
        ("exact up to eps", spec.approximate),
    ):
        if counts:
            lines.append(f"{title}: " + ", ".join(f"{name} ({n})" for name, n in counts.items()))
    return "\n".join(lines)
