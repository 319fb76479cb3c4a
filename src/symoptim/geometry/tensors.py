"""Weights as tensors: the precision they are updated in, and tensors that are spread over processes.

The formulas are written once, for ordinary tensors; torch's DTensor runs them as they are. One place needs
a word: the pieces of a sum over a sharded axis are added up before they are multiplied, or DTensor would
gather the whole weight instead.
"""

import sys
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def update_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision a parameter is updated in: its own, but at least float32.

    A unit-norm filter in bfloat16 cannot move by less than its rounding step, 1/256 of its size, so
    small steps would all be lost.

    >>> update_dtype(torch.bfloat16), update_dtype(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype


def is_distributed(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether a tensor is spread over processes."""
    # A DTensor can only exist once its module has been loaded; loading it here would take a second.
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(tensor, loaded.DTensor)


def replicated_like(factor: Tensor, tensor: Tensor) -> Tensor:
    """A factor that every process has, ready to multiply a tensor: on its device, in its precision."""
    factor = factor.to(tensor.device, tensor.dtype)
    if not is_distributed(tensor) or is_distributed(factor):
        return factor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = tensor.device_mesh
    return DTensor.from_local(factor, mesh, [Replicate()] * mesh.ndim, run_check=False)


def gathered(tensor: Tensor) -> Tensor:
    """The tensor itself, brought together if it is spread over processes."""
    return tensor.full_tensor() if is_distributed(tensor) else tensor


def complete(total: Tensor) -> Tensor:
    """Add up the pieces of a sum over a sharded axis; any other sum is complete already."""
    if not is_distributed(total):
        return total
    from torch.distributed.tensor import Replicate

    return total.redistribute(placements=[Replicate() if p.is_partial() else p for p in total.placements])
