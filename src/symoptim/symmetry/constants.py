"""Values that depend on no input and no weight: places that are looked up, most of all.

A model may make a tensor of a size (``torch.tensor([0.0] * n)``), choose one by a value, or keep one from
call to call in an attribute. Of constants that are others in other passes the values are not known: what is
zero in one pass, or an index, is not so in the next.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.symmetry.graph import Graph, Leaf, Operation, Ref, has_plain_sizes, name_of

LARGEST = 1_000_000
"""Elements of a value that is worth knowing: places are few, masks of long texts are many."""
NOT_WRITTEN = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")


def known_values(graph: Graph) -> dict[int, Tensor]:
    """What can be computed beforehand, by number of the value.

    Args:
        graph: of the model.

    Returns:
        Constants, integer buffers that nobody writes to, and what is made of them alone.
    """
    written = {name for name, _ in graph.mutated}
    values = {
        leaf.index: leaf.tensor for leaf in graph.leaves if leaf.name not in written and _is_constant(leaf)
    }
    for operation in graph.operations:
        value = _computed(operation, values)
        if value is not None:
            values[operation.index] = value
    return values


def _is_constant(leaf: Leaf) -> bool:
    """Whether its values are there and never change; buffers of real numbers may be rescaled."""
    tensor = leaf.tensor
    if tensor.device.type == "meta" or type(tensor) is not Tensor or tensor.numel() > LARGEST:
        return False
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    return leaf.kind == "constant" or (leaf.kind == "buffer" and whole)


def _computed(operation: Operation, values: Mapping[int, Tensor]) -> Tensor | None:
    """The value of an operation on known values, if it is always the same."""

    def value(argument: object) -> Any:
        if isinstance(argument, torch.device) and argument.type == "meta":
            return torch.device("cpu")  # places are made there, for a model without values has them too
        return values[argument.index] if isinstance(argument, Ref) else argument

    given = (operation.arguments, dict(operation.keywords))
    tags = getattr(operation.function, "tags", (torch.Tag.nondeterministic_seeded,))
    if (
        not isinstance(operation.result, Tensor)
        or operation.name in NOT_WRITTEN
        or operation.name != name_of(operation.function)  # it writes to what it is given
        or torch.Tag.nondeterministic_seeded in tags
        or any(isinstance(one, Ref) and one.index not in values for one in tree_leaves(given))
        or not has_plain_sizes(operation.result)
        or operation.result.numel() > LARGEST
    ):
        return None
    try:
        arguments, keywords = tree_map(value, given)
        found = operation.function(*arguments, **keywords)
        return None if found.device.type == "meta" else found
    except Exception:  # whatever it is: the value stays unknown
        return None


MOST_VALUES = 2**20
"""Entries of a tensor that are all looked at; of larger ones about as many, at equal distances."""


def changing_constants(passes: Iterable[Graph]) -> frozenset[int]:
    """Numbers for the values of constants that the same operation takes in other passes with other values.

    Args:
        passes: graphs, one after the other.

    Returns:
        What :func:`value_of` gives for these values.
    """
    found: dict[tuple[str, str, int, int], set[int]] = {}
    for graph in passes:
        values = {leaf.index: value_of(leaf.tensor) for leaf in graph.leaves if leaf.kind == "constant"}
        often = Counter[tuple[str, str]]()
        for operation in graph.operations:
            taken = [(n, one) for n, one in enumerate(operation.references()) if one in values]
            if taken:
                often[operation.place, operation.name] += 1
                number = often[operation.place, operation.name]
                for position, index in taken:
                    where = (operation.place, operation.name, number, position)
                    found.setdefault(where, set()).add(values[index])
    return frozenset(one for values in found.values() if len(values) > 1 for one in values)


def with_unknown(graph: Graph, changing: frozenset[int]) -> Graph:
    """The same graph, in which constants of these values are inputs, of which nothing is known."""
    if not changing:
        return graph
    leaves = (
        replace(leaf, kind="input") if leaf.kind == "constant" and value_of(leaf.tensor) in changing else leaf
        for leaf in graph.leaves
    )
    return replace(graph, leaves=tuple(leaves))


def value_of(tensor: Tensor) -> int:
    """A number for the type, the shape and the values of a tensor.

    >>> zeros = value_of(torch.zeros(2))
    >>> zeros == value_of(torch.zeros(2)), zeros == value_of(torch.ones(2))
    (True, False)
    """
    about = (str(tensor.dtype), str(tuple(tensor.shape)))
    if type(tensor) is not Tensor or tensor.is_meta or tensor.layout != torch.strided:
        return hash(about)
    if not has_plain_sizes(tensor) or tensor.is_quantized:
        return hash(about)
    values = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    values = values[:: 1 + len(values) // MOST_VALUES].cpu().contiguous()
    return hash((*about, bytes(values.view(torch.uint8).untyped_storage())[: values.nbytes]))
