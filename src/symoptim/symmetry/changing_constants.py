"""Constants of which other passes have others in their places: their values are not known.

A model may make a tensor of a size (``torch.tensor([0.0] * n)``), choose one by a value, or keep one from
call to call in an attribute. What is zero in one pass, or an index that is known, is not so in the next.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from symoptim.symmetry.graph import Graph, has_plain_sizes

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
