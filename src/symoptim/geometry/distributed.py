"""Tensors that are spread over processes.

The formulas are written once, for ordinary tensors; torch's DTensor runs them as they are. One place needs
a word: the pieces of a sum over a sharded axis are added up before they are multiplied, or DTensor would
gather the whole weight instead.
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
