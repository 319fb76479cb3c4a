"""Tensors that are spread over processes.

The formulas are written once, for ordinary tensors; torch's DTensor runs them as they are. Two places
need a word: the pieces of a sum over a sharded axis are added up before they are multiplied, and a
result is laid out like the tensor it is written to (DTensor replicates axes of size one).
"""

import sys
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_distributed(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether a tensor is spread over processes."""
    # A DTensor can only exist once its module has been loaded; loading it here would take a second.
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(tensor, loaded.DTensor)


def complete(total: Tensor) -> Tensor:
    """Add up the pieces of a sum over a sharded axis; any other sum is complete already."""
    if not is_distributed(total):
        return total
    from torch.distributed.tensor import Replicate

    return total.redistribute(placements=[Replicate() if p.is_partial() else p for p in total.placements])


def write(target: Tensor, value: Tensor) -> None:
    """Copy ``value`` to ``target``, which keeps its layout."""
    if is_distributed(target) and is_distributed(value):
        value = value.redistribute(placements=target.placements)
    target.copy_(value)
