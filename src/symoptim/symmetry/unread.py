"""Parts of a parameter that the example input does not reach, such as positions beyond its length.

Nothing in the graph speaks of them, so that they could scale as they like; but a longer input reads them
too. They are made to go with the part that is read.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.symmetry.form import Form
from symoptim.symmetry.graph import Graph, Operation, Ref
from symoptim.symmetry.system import System
from symoptim.symmetry.tensors import stacked, unique_values

READERS = ("slice", "select", "narrow", "index", "index_select", "embedding")


def tie_unread(system: System, graph: Graph, forms: Mapping[int, Form], known: Mapping[int, Tensor]) -> None:
    """Require that what nobody reads scales like the first that somebody does, along every axis.

    Args:
        system: gets the equations.
        graph: who reads what.
        forms: of the leaves, by number.
        known: places that never change.
    """
    users: dict[int, list[Operation]] = {index: [] for index in forms}
    for operation in graph.operations:
        for one in tree_leaves((operation.arguments, dict(operation.keywords))):
            if isinstance(one, Ref) and one.index in users:
                users[one.index].append(operation)
    for index, mine in users.items():
        if all(user.name in READERS for user in mine):
            _tie(system, forms[index], Ref(index), mine, known)


def _tie(system: System, form: Form, here: Ref, users: list[Operation], known: Mapping[int, Tensor]) -> None:
    for axis in range(len(form.shape)):
        read = _read(form.shape, axis, here, users, known)
        if read.any() and not read.all():
            first, rest = int(read.long().argmax()), (~read).nonzero().flatten()
            # Term by term: their sum would be an unknown for every entry.
            for term in form.terms:
                if term.shape[axis] > 1:
                    unread = term.index_select(axis, rest)
                    system.require([1, -1], stacked([unread, term.narrow(axis, first, 1)]))


def _read(
    shape: tuple[int, ...], axis: int, here: Ref, users: list[Operation], known: Mapping[int, Tensor]
) -> Tensor:
    """Which places of an axis are read: operations are run on the numbers of its places."""
    around = [size if other == axis else 1 for other, size in enumerate(shape)]
    numbers = torch.arange(shape[axis]).reshape(around).expand(shape)

    def value(argument: Any) -> Any:
        if argument == here:
            return numbers
        return known[argument.index].cpu() if isinstance(argument, Ref) else argument

    read = torch.zeros(shape[axis], dtype=torch.bool)
    for user in users:
        others = [one for one in tree_leaves(user.arguments) if isinstance(one, Ref) and one != here]
        if any(one.index not in known for one in others):
            return torch.ones_like(read)  # which ones is not known: any
        read[unique_values(user.function(*tree_map(value, user.arguments)))[0]] = True
    return read
