"""Values that depend on no input and no weight: places that are looked up, most of all."""

from collections.abc import Mapping
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

    def value(argument: Any) -> Any:
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
