"""Parts of a parameter that the example input does not reach, such as positions beyond its length.

Nothing in the graph speaks of them, so that they could scale as they like; but a longer input reads them
too. They are made to go with the part that is read.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from symoptim.symmetry.form import Form
from symoptim.symmetry.graph import Graph, Operation, Ref
from symoptim.symmetry.rules.moving import WHOLE
from symoptim.symmetry.rules.pointwise import COPIES
from symoptim.symmetry.system import System
from symoptim.symmetry.tensors import stacked, unique_values

READERS = ("slice", "select", "narrow", "index", "index_select", "embedding")
PASSED_ON = {*READERS, *WHOLE, *COPIES, "view", "_unsafe_view", "reshape", "mul", "div", "neg"}
"""Operations behind which only a part, or the same in another order, may be read."""


def tie_unread(system: System, graph: Graph, forms: Mapping[int, Form], known: Mapping[int, Tensor]) -> None:
    """Require that what nobody reads scales like the first that somebody does, along every axis.

    Args:
        system: gets the equations.
        graph: who reads what.
        forms: of the leaves, by number.
        known: places that never change.
    """
    users: dict[int, list[Operation]] = {}
    for operation in graph.operations:
        for index in operation.references():
            users.setdefault(index, []).append(operation)
    reading = _Reading(users, known, {ref.index for ref in graph.outputs})
    for index, form in forms.items():
        if form.terms and any(user.name in PASSED_ON for user in users.get(index, ())):
            _tie(system, form, reading, index)


def _tie(system: System, form: Form, reading: "_Reading", index: int) -> None:
    for axis, size in enumerate(form.shape):
        around = [size if other == axis else 1 for other in range(len(form.shape))]
        numbers = torch.arange(size).reshape(around).expand(form.shape)
        read = torch.zeros(size, dtype=torch.bool)
        reading.follow(index, numbers, read)
        if read.any() and not read.all():
            first, rest = int(read.long().argmax()), (~read).nonzero().flatten()
            # Term by term: their sum would be an unknown for every entry.
            for term in form.terms:
                if term.shape[axis] > 1:
                    unread = term.index_select(axis, rest)
                    system.require([1, -1], stacked([unread, term.narrow(axis, first, 1)]))


class _Reading:
    """Follows the places of a parameter to where they are used."""

    def __init__(
        self, users: Mapping[int, list[Operation]], known: Mapping[int, Tensor], outputs: set[int]
    ) -> None:
        self.users, self.known, self.outputs = users, known, outputs

    def follow(self, index: int, numbers: Tensor, read: Tensor) -> None:
        """Mark the places that are used: operations are run on their numbers as on the values."""
        for user in self.users.get(index, ()):
            passed = None if read.all() else self._passed(user, index, numbers)
            if passed is None:
                _mark(read, numbers)
            else:
                self.follow(user.index, passed, read)
        if index in self.outputs:
            _mark(read, numbers)

    def _passed(self, user: Operation, index: int, numbers: Tensor) -> Tensor | None:
        """Numbers behind an operation that only takes a part or moves it; None behind all others."""
        others = [one for one in user.references() if one != index]
        if user.name not in PASSED_ON or any(one not in self.known for one in others):
            return None
        if user.name in (*COPIES, "mul", "div", "neg"):
            return numbers if tuple(user.result.shape) == tuple(numbers.shape) and not others else None
        if user.name in ("view", "_unsafe_view", "reshape"):
            return numbers.reshape(tuple(user.result.shape))

        def value(argument: Any) -> Any:
            if not isinstance(argument, Ref):
                return argument
            return numbers if argument.index == index else self.known[argument.index].cpu()

        return user.function(*tree_map(value, user.arguments), **tree_map(value, dict(user.keywords)))


def _mark(read: Tensor, numbers: Tensor) -> None:
    for axis in range(numbers.dim()):
        if numbers.stride(axis) == 0 and numbers.shape[axis] > 1:
            numbers = numbers.narrow(axis, 0, 1)  # repeated, not stored: of a large table that is a lot
    if not read.all():
        read[unique_values(numbers)[0]] = True
