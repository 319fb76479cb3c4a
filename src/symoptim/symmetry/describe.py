"""A group in words: its generators by kind, and which slices of which tensors each kind moves.

Generators of one place that move the same tensors in the same way are of one kind, and one of them stands for
all. What it does to a tensor is a product of powers of its scale, each of some slices along an axis.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.names import (
    NamesByPattern,
    as_set,
    by_pattern,
    filled,
    fitting,
    is_number,
    is_set,
    numbers_in,
    part_of,
    parts_of,
    patterns_of,
    products,
    replaced,
    starred,
)
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import (
    different_values,
    on_cpu,
    squeezed,
    sum_of_few,
    unique_rows,
    whole_numbers,
)

ENTRIES = -1


class Slice(NamedTuple):
    """Part of a tensor that moves: some slices along an axis, and by which power of the scale.

    The axis is None for all of the tensor, and ``ENTRIES`` for entries that are no slices. An entry in slices
    along two axes moves by both powers. The name may be a pattern, see :func:`table_of`.
    """

    tensor: str
    shape: tuple[int, ...]
    axis: int | None
    exponent: float
    places: str = ""
    """Numbers of the slices that units of this kind have, where they are some of those along the axis."""

    @property
    def moved(self) -> str:
        """Which part moves, and how."""
        part = {None: "", 0: " rows", 1: " columns"}.get(self.axis, f" slices of axis {self.axis}")
        part = " entries" if self.axis == ENTRIES or (part and len(self.shape) == 1) else part
        power = {1.0: "x a", -1.0: "/ a"}.get(self.exponent, f"x a^{self.exponent:g}")
        return f"{part}{f' {self.places}' if self.places else ''} {power}"

    def __str__(self) -> str:
        return f"{self.tensor}{self.moved}"


class KindOfUnit(NamedTuple):
    """Generators of one kind: their place in the model, their numbers, and what each of them moves."""

    place: str
    generators: tuple[int, ...]
    slices: tuple[Slice, ...]

    @property
    def number(self) -> int:
        """How many they are."""
        return len(self.generators)


@on_cpu
def kinds(spec: SymmetrySpec) -> list[KindOfUnit]:
    """All kinds of generators, in the order of the tensors they move."""
    members: dict[tuple[str, tuple[tuple[str, int], ...]], list[int]] = {}
    touched = _touched(spec)
    for number, name in enumerate(spec.names):
        members.setdefault((name.rpartition(" [")[0], tuple(touched[number])), []).append(number)
    alike: dict[tuple[str, tuple[Slice, ...]], list[int]] = {}
    for (place, moved), numbers in members.items():
        slices = tuple(_slices(spec, numbers[-1], [name for name, _ in moved]))
        alike.setdefault((place, slices), []).extend(numbers)
    order = {name: position for position, name in enumerate(spec.tensors)}
    found = [
        _with_places(spec, KindOfUnit(place, tuple(sorted(same)), slices))
        for (place, slices), same in alike.items()
    ]
    return sorted(found, key=lambda kind: [order[one.tensor] for one in kind.slices])


def _touched(spec: SymmetrySpec) -> list[list[tuple[str, int]]]:
    """Tensors that each generator moves, each with a number of the way in which it does."""
    found: list[list[tuple[str, int]]] = [[] for _ in spec.names]
    for name in spec.tensors:
        numbers = spec.moves([name]).nonzero().flatten()
        _, ways = unique_rows((_moments(spec, name)[numbers] * 1e4).round().long())
        for number, way in zip(whole_numbers(numbers), whole_numbers(ways), strict=True):
            found[number].append((name, way))
    return found


def _moments(spec: SymmetrySpec, name: str) -> Tensor:
    """For every generator the sum of the powers that entries move by, and moments of them along each axis.

    What a sum has of rows and what of columns is free up to a constant, so the moments are central.
    Powers with equal sums up to the fourth that are not the same have at least five different values.
    """
    moved, found = spec.tensors[name], [torch.zeros(len(spec), dtype=torch.float64)]
    for term in moved.terms:
        counts = torch.bincount(term.reshape(-1) % (spec.scales + 1), minlength=spec.scales + 1)
        sums = _sums_of_powers(spec, counts)
        found[0] = found[0] + sums[0] * (math.prod(moved.shape) / term.numel())
        if sum(size > 1 for size in term.shape) == 1:
            size, mean = term.numel(), sums[0] / term.numel()
            found.append(sums[1] - size * mean**2)
            found.append(sums[2] - 3 * mean * sums[1] + 2 * size * mean**3)
            found.append(sums[3] - 4 * mean * sums[2] + 6 * mean**2 * sums[1] - 3 * size * mean**4)
    return torch.stack(found, dim=1)


def _sums_of_powers(spec: SymmetrySpec, counts: Tensor) -> list[Tensor]:
    """For every generator sums of exponents to the powers 1 to 4, each as often as its scale is there."""
    there = (counts[spec.exponents.rows] > 0).nonzero().flatten()
    exponents, times = spec.exponents.values[there], counts[spec.exponents.rows[there]]
    columns, nothing = spec.exponents.columns[there], torch.zeros(len(spec), dtype=torch.float64)
    return [nothing.index_add(0, columns, exponents**power * times) for power in range(1, 5)]


def _slices(spec: SymmetrySpec, number: int, tensors: Sequence[str]) -> Iterator[Slice]:
    """What one generator does to these tensors; those it only moves back and forth are left out."""
    element = torch.zeros(len(spec), dtype=torch.float64)
    element[number] = 1.0
    for name, terms in spec.log_terms(element, tensors).items():
        for axis, exponent, _ in _parts(terms):
            yield Slice(name, spec.tensors[name].shape, axis, exponent)


def _with_places(spec: SymmetrySpec, kind: KindOfUnit) -> KindOfUnit:
    """A kind that says which slices its units have, where not all of an axis is theirs.

    Rows of several kinds may be of one tensor: of queries, keys and values in one matrix.
    """
    names = list(dict.fromkeys(one.tensor for one in kind.slices))
    element = torch.zeros(len(spec), dtype=torch.float64)
    element[kind.generators[-1]] = 1.0
    alone = together = {name: _places_of(terms) for name, terms in spec.log_terms(element, names).items()}
    if kind.number > 1:
        element[list(kind.generators)] = 1.0
        together = {name: _places_of(terms) for name, terms in spec.log_terms(element, names).items()}
    slices: list[Slice] = []
    for one in kind.slices:
        key = one.axis, one.exponent
        its, all_places = alone[one.tensor].get(key), together[one.tensor].get(key)
        # Where units overlap, powers add up, and these are not their places.
        if its is not None and all_places is not None and len(all_places) == len(its) * kind.number:
            assert one.axis is not None
            some = len(all_places) < one.shape[one.axis]
            one = one._replace(places=_ranges(whole_numbers(all_places)) if some else "")
        slices.append(one)
    return kind._replace(slices=tuple(slices))


def _places_of(terms: Sequence[Tensor]) -> dict[tuple[int | None, float], Tensor]:
    """Numbers of slices by axis and power."""
    return {(axis, power): places for axis, power, places in _parts(terms) if places is not None}


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in order, in a few words.

    >>> _ranges([8, 9, 10, 11]), _ranges([3]), _ranges([0, 1, 2, 6, 7, 8]), _ranges(range(0, 32, 2))
    ('8..11', '3', '0..2,6..8', '0,2,4,..,30')
    """
    parts = as_set(numbers).strip("{}").split(",")
    return ",".join(parts if len(parts) <= FEW_RANGES else [*parts[:3], "..", parts[-1]])


FEW_RANGES = 6


def _parts(terms: Sequence[Tensor]) -> Iterator[tuple[int | None, float, Tensor | None]]:
    """A sum of terms as powers of slices along axes, with their places; of entries if it is no such sum."""
    whole, along = 0.0, dict[int, Tensor]()
    for term in map(squeezed, terms):
        axes = [axis for axis, size in enumerate(term.shape) if size > 1]
        if len(axes) > 1:
            yield from _entries(terms)
            return
        if axes:
            along[axes[0]] = along.get(axes[0], 0) + term.flatten()
        else:
            whole += float(term)
    for axis, values in along.items():
        usual = values.mode().values if len(along) > 1 else torch.zeros(())
        along[axis], whole = values - usual, whole + float(usual)
    if len(along) == 1:
        along, whole = {axis: values + whole for axis, values in along.items()}, 0.0
    yield from [(None, whole, None)] if abs(whole) > ROUNDING else []
    for axis in sorted(along):
        rounded = along[axis].round(decimals=6)
        for exponent in different_values(rounded):
            yield from [(axis, exponent, (rounded == exponent).nonzero().flatten())] if exponent else []


ROUNDING = 1e-6


def _entries(terms: Sequence[Tensor]) -> Iterator[tuple[int | None, float, Tensor | None]]:
    """Powers of entries, each along the axis its entries are slices of, if there is one."""
    small = sum_of_few(terms).round(decimals=6)
    for exponent in different_values(small):
        mask = squeezed(small == exponent)
        axes = [axis for axis, size in enumerate(mask.shape) if size > 1]
        if exponent:
            places = mask.flatten().nonzero().flatten() if len(axes) == 1 else None
            yield (axes[0] if len(axes) == 1 else ENTRIES if axes else None), exponent, places


FEW = 12  # kinds that are shown as they are


@on_cpu
def table_of(spec: SymmetrySpec) -> list[KindOfUnit]:
    """All kinds; of a deep network those that differ by the number of a layer only are one.

    Names then are patterns: ``{0..2,5}`` is any of these numbers, ``*`` any number with which there is such a
    tensor in the model. A pattern in a place means that each of these layers has such units; at the same part
    of names it is the layer of the unit. What all other patterns of a row stand for moves with each unit.
    """
    found = kinds(spec)
    if len(found) <= FEW:
        return found
    names = by_pattern([*spec.tensors, *spec.aliases, *spec.unreached])
    found = [_starred(kind._replace(slices=tuple(_shortened(kind.slices))), names) for kind in found]
    for part in reversed(range(max(len(parts_of(kind.place)) for kind in found))):
        found = [_starred(kind, names) for kind in _merged(found, part)]
    return found


def _shortened(slices: Sequence[Slice]) -> Iterator[Slice]:
    """The same, with slices that differ by numbers only as one."""
    alike: dict[tuple[str, str], dict[tuple[int, ...], Slice]] = {}
    for one in slices:
        alike.setdefault((starred(one.tensor), one.moved), {})[numbers_in(one.tensor)] = one
    for (pattern, _), same in alike.items():
        for choices in products(set(same)):
            first = same[tuple(choice[0] for choice in choices)]
            yield first._replace(tensor=filled(pattern, map(as_set, choices)))


def _merged(found: Sequence[KindOfUnit], part: int) -> list[KindOfUnit]:
    """Kinds that differ by one number alone, which is at this part of their places and names."""
    alike: dict[object, list[KindOfUnit]] = {}
    for position, kind in enumerate(found):
        number = part_of(kind.place, part)
        patterns_there = any(is_set(part_of(one.tensor, part)) for one in kind.slices)
        key = _text(_renumbered(kind, part, "*")) if is_number(number) and not patterns_there else position
        alike.setdefault(key, []).append(kind)
    return [same[0] if len(same) == 1 else _together(same, part) for same in alike.values()]


def _renumbered(kind: KindOfUnit, part: int, new: str) -> KindOfUnit:
    """A kind with something else for its number at a part, there and in names."""
    old = part_of(kind.place, part)
    slices = (one._replace(tensor=replaced(one.tensor, part, old, new)) for one in kind.slices)
    return KindOfUnit(replaced(kind.place, part, old, new), kind.generators, tuple(slices))


def _text(kind: KindOfUnit) -> tuple[str, ...]:
    return (kind.place, *map(str, kind.slices))


def _together(same: Sequence[KindOfUnit], part: int) -> KindOfUnit:
    numbers = sorted(int(part_of(kind.place, part)) for kind in same)
    generators = tuple(number for kind in same for number in kind.generators)
    return _renumbered(same[0], part, as_set(numbers))._replace(generators=generators)


def _starred(kind: KindOfUnit, names: NamesByPattern) -> KindOfUnit:
    """A kind with ``*`` for sets of numbers, where no other names of the model fit."""
    for part in range(max(len(parts_of(one.tensor)) for one in kind.slices)):
        if is_set(part_of(kind.place, part)):  # it is one number in the whole row
            new = _renumbered(kind, part, "*")
            same = all(_fit_alike(a, b, names) for a, b in zip(kind.slices, new.slices, strict=True))
            kind = new if same else kind
        else:
            slices = tuple(_with_star(one, part, names) for one in kind.slices)
            kind = kind._replace(slices=slices)
    return kind


def _with_star(one: Slice, part: int, names: NamesByPattern) -> Slice:
    there = part_of(one.tensor, part)
    new = one._replace(tensor=replaced(one.tensor, part, there, "*")) if is_set(there) else one
    return new if _fit_alike(one, new, names) else one


def _fit_alike(one: Slice, other: Slice, names: NamesByPattern) -> bool:
    return fitting(one.tensor, names) == fitting(other.tensor, names)


def text_of(spec: SymmetrySpec) -> str:
    """The group as a table, and what was not looked through."""
    rows = [(str(kind.number), kind.place, ", ".join(map(str, kind.slices))) for kind in table_of(spec)]
    width = [max((len(row[k]) for row in rows), default=0) for k in range(2)]
    lines = [f"{len(spec)} rescalings"]
    lines += [f"{count:>{width[0]}}  {place:<{width[1]}}  {moved}" for count, place, moved in rows]
    return "\n".join([*lines, *remarks(spec)])


@on_cpu
def remarks(spec: SymmetrySpec) -> list[str]:
    """The mode it was found in, what was pinned and why, and what holds only nearly or on some paths."""
    said = [f"found in {_mode_of(spec.modes)}"] if spec.modes else []
    if spec.unknown:
        said.append(f"unknown operations, so all they touch is pinned: {_counted(spec.unknown)}")
    if spec.pinned:
        said.append(f"operations that a scale cannot pass: {_counted(spec.pinned)}")
    if spec.approximate:
        operations = Counter[str]()
        for place, number in spec.approximate.items():
            operations[re.sub(r" in .* \(", " (", place)] += number
        said.append(f"approximate where eps matters: {_counted(operations)}")
    if spec.recorded:
        said.append(f"found by watching one pass, for inputs that take the same way ({spec.recorded})")
    if spec.unreached:
        names = ", ".join(patterns_of(spec.unreached))
        said.append(f"parameters that no example used, so that what could meet them is pinned: {names}")
    return [*said, *spec.paths]


def _mode_of(modes: Mapping[str, bool]) -> str:
    """The mode of a model, and of modules that differ."""
    words = {True: "training mode", False: "evaluation mode"}
    others = {mode: [name for name, one in modes.items() if name and one == mode] for mode in words}
    differing = [
        f"{', '.join(patterns_of(names))} in {words[mode]}" for mode, names in others.items() if names
    ]
    return ", ".join([words[modes[""]], *differing])


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x {number}" if number > 1 else name for name, number in counts.items())
