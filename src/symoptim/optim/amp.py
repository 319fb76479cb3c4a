"""Losses that ``torch.amp.GradScaler`` has multiplied: kernels divide, and skip a step that is none.

A GradScaler that finds ``_step_supports_amp_scaling`` leaves the gradients as they are and gives the
optimizer ``grad_scale`` and ``found_inf``, tensors on the device: nobody has to wait for them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from symoptim.geometry.tensors import update_dtype
from symoptim.kernels.backend import unsupported_device_reason
from symoptim.optim.fused_support import wants_fused
from symoptim.optim.validation import Group


class LossScaling(NamedTuple):
    """What gradients are to be divided by, and whether any was not finite: then nothing may be done."""

    scale: Tensor
    found_inf: Tensor

    def undone(self, gradient: Tensor) -> Tensor:
        """A gradient of the loss as it was, in the precision of updates: in its own it may be too small."""
        wide = gradient.to(update_dtype(gradient.dtype))
        return wide / self.scale.to(wide.device)


def supports_loss_scaling(groups: Sequence[Group]) -> bool:
    """Whether all parameters of the groups are stepped by kernels that know how to divide."""
    return all(
        wants_fused(group)
        and all(p.is_cuda and unsupported_device_reason(p.device, p.dtype) is None for p in group["params"])
        for group in groups
    )


def loss_scaling(optimizer: Optimizer) -> LossScaling | None:
    """What a GradScaler has left with the optimizer, within a step that it has called."""
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    if found is None:
        return None
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    return LossScaling(torch.ones_like(found) if scale is None else scale, found)
