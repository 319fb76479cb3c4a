"""A group in words: its generators by kind, and which slices of which tensors each kind moves.

Generators of one place that move the same tensors are of one kind. One of them stands for all: what it does
to every entry is looked at, and slices are named by axis.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import different_values, sum_of_few, whole_numbers


class Slice(NamedTuple):
    """Part of a tensor that moves: along which axis (None for all of it), and by which power of the scale."""

    tensor: str
    shape: tuple[int, ...]
    axis: int | None
    exponent: float

    def __str__(self) -> str:
        part = {None: "", 0: " rows", 1: " columns"}.get(self.axis, f" slices of axis {self.axis}")
        part = " entries" if part and len(self.shape) == 1 else part
        power = {1.0: "x a", -1.0: "/ a"}.get(self.exponent, f"x a^{self.exponent:g}")
        return f"{self.tensor}{part} {power}"


class KindOfUnit(NamedTuple):
    """Generators of one kind: their place in the model, how many they are, and what each moves."""

    place: str
    number: int
    slices: tuple[Slice, ...]


def kinds(spec: SymmetrySpec) -> list[KindOfUnit]:
    """All kinds of generators, in the order of the tensors they move."""
    members: dict[tuple[str, tuple[tuple[str, float], ...]], list[int]] = {}
    touched = _touched(spec)
    for number, name in enumerate(spec.names):
        members.setdefault((name.rpartition(" [")[0], tuple(touched[number])), []).append(number)
    order = {name: position for position, name in enumerate(spec.tensors)}
    found = [
        KindOfUnit(place, len(numbers), tuple(_slices(spec, numbers[-1], [name for name, _ in moved])))
        for (place, moved), numbers in members.items()
    ]
    return sorted(found, key=lambda kind: [order[one.tensor] for one in kind.slices])


def _touched(spec: SymmetrySpec) -> list[list[tuple[str, float]]]:
    """Tensors that each generator moves, each with the sum of the exponents of its entries."""
    found: list[list[tuple[str, float]]] = [[] for _ in spec.names]
    for name in spec.tensors:
        sums = _sums_of_exponents(spec, name)
        for number in whole_numbers(spec.moves([name]).nonzero().flatten()):
            found[number].append((name, round(float(sums[number]), 6)))
    return found


def _sums_of_exponents(spec: SymmetrySpec, name: str) -> Tensor:
    """For every generator the sum over a tensor's entries of the powers they move by."""
    moved, totals = spec.tensors[name], torch.zeros(spec.scales + 1, dtype=torch.float64)
    for term in moved.terms:
        times = math.prod(moved.shape) / term.numel()
        ids = term.reshape(-1) % (spec.scales + 1)
        totals.index_add_(0, ids, torch.full((len(ids),), times, dtype=torch.float64))
    return spec.by_generator(totals)


def _slices(spec: SymmetrySpec, number: int, tensors: Sequence[str]) -> Iterator[Slice]:
    """What one generator does to these tensors; those it only moves back and forth are left out."""
    element = torch.zeros(len(spec), dtype=torch.float64)
    element[number] = 1.0
    for name, terms in spec.log_terms(element, tensors).items():
        # Rows that move alike are looked at once: of a large table there are few kinds.
        small = sum_of_few(terms)
        for exponent in different_values(small):
            if exponent != 0:
                yield Slice(name, spec.tensors[name].shape, _axis(small == exponent), exponent)


def _axis(mask: Tensor) -> int | None:
    """The axis along which the fewest slices have a part in the mask; none if all have, along every axis."""
    shares: list[float] = []
    for axis in range(mask.dim()):
        others = [other for other in range(mask.dim()) if other != axis]
        shares.append(float((mask.any(dim=others) if others else mask).double().mean()))
    return shares.index(min(shares)) if shares and min(shares) < 1 else None


FEW = 12  # kinds that are shown as they are


def table_of(spec: SymmetrySpec) -> list[KindOfUnit]:
    """All kinds; of a deep network those that differ by numbers in names only are one, numbers as ``*``."""
    found = kinds(spec)
    if len(found) <= FEW:
        return found
    alike: dict[tuple[str, tuple[str, ...]], list[KindOfUnit]] = {}
    for kind in found:
        key = (_starred(kind.place), tuple(str(_without_numbers(one)) for one in kind.slices))
        alike.setdefault(key, []).append(kind)
    return [_shortened(same[0]) if len(same) == 1 else _together(same) for same in alike.values()]


def _shortened(kind: KindOfUnit) -> KindOfUnit:
    """The same, with slices that differ by numbers only as one."""
    starred = [_without_numbers(one) for one in kind.slices]
    times = Counter(map(str, starred))
    shown = (b if times[str(b)] > 1 else a for a, b in zip(kind.slices, starred, strict=True))
    return kind._replace(slices=tuple({str(one): one for one in shown}.values()))


def _together(same: list[KindOfUnit]) -> KindOfUnit:
    slices = {str(starred): starred for starred in map(_without_numbers, same[0].slices)}
    return KindOfUnit(_starred(same[0].place), sum(kind.number for kind in same), tuple(slices.values()))


def _without_numbers(one: Slice) -> Slice:
    return one._replace(tensor=_starred(one.tensor))


def _starred(name: str) -> str:
    return re.sub(r"\b\d+\b", "*", name)


def text_of(spec: SymmetrySpec) -> str:
    """The group as a table, and what was not looked through."""
    rows = [(str(kind.number), kind.place, ", ".join(map(str, kind.slices))) for kind in table_of(spec)]
    width = [max((len(row[k]) for row in rows), default=0) for k in range(2)]
    lines = [f"{len(spec)} rescalings"]
    lines += [f"{count:>{width[0]}}  {place:<{width[1]}}  {moved}" for count, place, moved in rows]
    return "\n".join([*lines, *remarks(spec)])


def remarks(spec: SymmetrySpec) -> list[str]:
    """What was pinned and why, and what holds only nearly."""
    said: list[str] = []
    if spec.unknown:
        said.append(f"unknown operations, so all they touch is pinned: {_counted(spec.unknown)}")
    if spec.pinned:
        said.append(f"operations that a scale cannot pass: {_counted(spec.pinned)}")
    if spec.approximate:
        operations = Counter[str]()
        for place, number in spec.approximate.items():
            operations[re.sub(r" in .* \(", " (", place)] += number
        said.append(f"exact as far as eps is not felt: {_counted(operations)}")
    if spec.recorded:
        said.append(f"found by watching one pass, for inputs that take the same way ({spec.recorded})")
    return said


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x {number}" if number > 1 else name for name, number in counts.items())
