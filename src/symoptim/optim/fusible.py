"""Which parameters kernels can step, and why not the others."""

from torch import Tensor

from symoptim.geometry.distributed import is_distributed
from symoptim.geometry.filters import update_dtype
from symoptim.kernels import table as columns
from symoptim.kernels.dispatch import why_not_here, why_not_lying
from symoptim.kernels.lay import have_same_lay, is_dense, lay_of
from symoptim.optim.bucket import KEPT, local
from symoptim.optim.checks import Group
from symoptim.optim.precision import State
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update

KINDS: dict[Update, int] = {PLAIN: columns.PLAIN, SCALED: columns.SCALED, UNIT_NORM: columns.UNIT}


def why_not(parameter: Tensor, gradient: Tensor, group: Group, update: Update) -> str | None:
    """Why a kernel cannot step a parameter, or None if one can."""
    if update not in KINDS:
        return "there is no kernel for this update"
    if group["differentiable"]:
        return "autograd cannot follow a kernel (differentiable=True)"
    there = why_not_here(parameter.device, parameter.dtype)
    if there is not None:
        return there
    if gradient.dtype != parameter.dtype:
        return f"its gradient is {gradient.dtype}, itself {parameter.dtype}"
    if update is UNIT_NORM and group["weight_decay"]:
        return f"the kernel for unit-norm rows knows no weight decay (weight_decay={group['weight_decay']})"
    if parameter.is_neg() or gradient.is_neg():
        return "it is a lazily negated view, or its gradient is: resolve_neg() makes a tensor of it"
    if is_distributed(parameter) and update is not PLAIN:
        axis = axis_of(group, update)
        if any(placement.is_shard() and not placement.is_shard(axis) for placement in parameter.placements):
            return f"its filters are spread over processes ({parameter.placements})"
    weights, change = local(parameter.detach()), local(gradient)
    if not is_dense(weights):
        return f"it has gaps or overlaps in memory (strides {tuple(weights.stride())})"
    if not have_same_lay(weights, change):
        return f"its strides are {tuple(weights.stride())}, those of its gradient {tuple(change.stride())}"
    return why_not_lying(weights.device, lay_of(weights, axis_of(group, update)))


def axis_of(group: Group, update: Update) -> int | None:
    """The axis that counts filters; none where the update knows no filters."""
    if update is PLAIN:
        return None
    return group["axis"] if group["geometry"] == "rows" else 1 - group["axis"]


def why_not_with(parameter: Tensor, state: State) -> str | None:
    """Why a kernel cannot step a parameter with this state, or None if it can."""
    like = parameter.shape, update_dtype(parameter.dtype), parameter.device
    for key in KEPT:
        kept = state.get(key)
        if kept is not None and (kept.shape, kept.dtype, kept.device) != like:
            return f"its {key} is {tuple(kept.shape)} of {kept.dtype} on {kept.device}"
    return None
