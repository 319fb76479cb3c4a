"""Places that the example input does not read, such as positions beyond its length, and unused weights.

A longer input reads them too. Where an operation takes a part along an axis, the rest is made to go with the
first place that is read; what is not read at all cannot scale.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from symoptim.symmetry.form import ANYTHING, Form
from symoptim.symmetry.graph import Graph
from symoptim.symmetry.read_places import Read, ReadPlaces
from symoptim.symmetry.system import System
from symoptim.symmetry.tensors import aligned, broadcast_shape, stacked


class Pass(NamedTuple):
    """A graph, forms of all its values by number, and values that never change."""

    graph: Graph
    values: Mapping[int, Any]
    known: Mapping[int, Tensor]


def tie_unread(system: System, passes: Sequence[Pass]) -> None:
    """Require that what is not read scales like what is; what no pass reads does not scale.

    Args:
        system: gets the equations.
        passes: of the model.
    """
    readings = [ReadPlaces(*one) for one in passes]
    moving = [
        (one.values[leaf.index], leaf.index in reading.read)
        for one, reading in zip(passes, readings, strict=True)
        for leaf in one.graph.leaves
        if leaf.kind != "constant" and _moves(one.values.get(leaf.index))
    ]
    alive = {id(form) for form, is_read in moving if is_read}  # tied tensors have one form
    for form, _ in moving:
        if id(form) not in alive:
            system.pin(form)
    silent = any(reading.silent for reading in readings)
    met = set[Any]().union(*(reading.uses() for reading in readings)) if silent else set[Any]()
    read_by_others = _read_alike(passes, readings)
    for one, reading in zip(passes, readings, strict=True):
        _tie_parts(system, one, reading, met, read_by_others)


Key = tuple[str, frozenset[tuple[str, str]]]
"""A tensor of the model, and what is done in a pass, each operation once."""


def _key(one: Pass, name: str) -> Key:
    return name, frozenset((operation.place, operation.name) for operation in one.graph.operations)


def _read_alike(passes: Sequence[Pass], readings: Sequence[ReadPlaces]) -> dict[Key, Read]:
    """Places of the model's tensors that passes read which do the same, perhaps another number of times.

    An expert that has no token in one pass, and has some in another, has its own equations from there.
    """
    found: dict[Key, Read] = {}
    for one, reading in zip(passes, readings, strict=True):
        for leaf in one.graph.leaves:
            can_move = _moves(one.values.get(leaf.index))  # inputs have other shapes in other passes
            if can_move and leaf.index in reading.read and leaf.index in reading.partly:
                key, read = _key(one, leaf.name), reading.everywhere(leaf.index)
                before = found.get(key, read)
                found[key] = None if before is None or read is None else before | read
    return found


def _tie_parts(
    system: System, one: Pass, reading: ReadPlaces, met: Collection[object], read_alike: Mapping[Key, Read]
) -> None:
    """What one pass reads in part, or multiplies only zeros with."""
    values = one.values
    names = {leaf.index: leaf.name for leaf in one.graph.leaves if _moves(values.get(leaf.index))}
    for index in reading.silenced(met):
        form = values.get(index)
        if isinstance(form, Form):
            system.pin(form)
    for index, axes in reading.partly.items():
        form = values.get(index)
        read = reading.everywhere(index) if index in reading.read else None
        if read is not None and index in names:
            read = read_alike[_key(one, names[index])]
        if read is not None and isinstance(form, Form):
            _tie(system, form, read, axes)


def _moves(form: object) -> bool:
    return isinstance(form, Form) and bool(form.terms)


def _tie(system: System, form: Form, read: Tensor, axes: Sequence[int]) -> None:
    """Tie places of a value that are not read to those that are, along these axes first."""
    count = len(form.shape)
    order = list(dict.fromkeys([*(axis % count for axis in axes), *range(count)]))
    partly = [axis for axis in range(count) if read.shape[axis] > 1]
    terms = list(form.terms)
    for addend in form.addends:  # one that does not vary between what is read and what is not stays put off
        spread = aligned(addend.spread, count)
        if any(spread.shape[axis] > 1 for axis in partly):
            terms += system.settle(addend.merge()).terms
    # Term by term: their sum would be an unknown for every entry.
    for term in terms:
        if any(term.shape[axis] > 1 for axis in partly):
            _tie_term(system, term, read, order)


def _tie_term(system: System, term: Tensor, read: Tensor, order: Sequence[int]) -> None:
    for axis in order:
        if term.shape[axis] == 1:
            read = read.any(dim=axis, keepdim=True)
    ids = term.expand(broadcast_shape(term.shape, read.shape))
    read = read & (ids != ANYTHING)
    for axis in order:
        place = read.long().argmax(dim=axis, keepdim=True)
        some = read.any(dim=axis, keepdim=True)
        pairs = stacked([ids, ids.gather(axis, place)])
        system.require([1, -1], pairs[some & ~read])
        read = (read | some) & (ids != ANYTHING)
    system.require([1], ids[~read])  # all that is read is zero: there is nothing to go with
