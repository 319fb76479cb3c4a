"""Distributed tensors: which layouts the updates are right for.

Every formula means the same on a DTensor as on the tensor it stands for, uneven shards included
(:mod:`symoptim.geometry.distributed`), so any mix of sharded and replicated axes gives the
single-process result. What is left out: partial values, which are not weights yet.
"""

import torch
from torch import Tensor

from symoptim.errors import LayoutError
from symoptim.geometry.distributed import is_distributed


def write(target: Tensor, value: Tensor) -> None:
    """Copy ``value`` to ``target``, which keeps its layout: DTensor replicates results of size one."""
    if is_distributed(target) and is_distributed(value):
        value = value.redistribute(placements=target.placements)
    target.copy_(value)


def require_layout(parameter: Tensor, name: str) -> None:
    """Refuse a parameter that is still to be summed over processes, or that cannot be written."""
    if parameter.layout is torch.strided and not is_distributed(parameter):
        both = zip(parameter.shape, parameter.stride(), strict=True)
        if parameter.numel() and any(size > 1 and stride == 0 for size, stride in both):
            raise LayoutError(
                f"{name} has several entries in the same memory (strides {parameter.stride()}), which cannot "
                "be given different values: clone() it"
            )
    if is_distributed(parameter) and any(p.is_partial() for p in parameter.placements):
        raise LayoutError(
            f"{name} is laid out as {parameter.placements}; partial values are not "
            "weights yet: redistribute it to Shard or Replicate first"
        )


def require_same_layout(parameter: Tensor, gradient: Tensor, name: str) -> None:
    """Refuse a gradient that is not laid out like its parameter."""
    ours = parameter.placements if is_distributed(parameter) else None
    theirs = gradient.placements if is_distributed(gradient) else None
    if ours != theirs:
        raise LayoutError(
            f"the gradient of {name} is laid out as {theirs}, the parameter as {ours}; they must match: "
            "redistribute the gradient before the step"
        )
