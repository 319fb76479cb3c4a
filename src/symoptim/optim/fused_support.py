"""Which parameters kernels can step, and why not the others."""

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from symoptim.errors import OptionError, SlowWarning
from symoptim.geometry.tensors import is_distributed, update_dtype
from symoptim.kernels import descriptor
from symoptim.kernels.backend import (
    kernel_dtype,
    numba_missing_reason,
    unsupported_device_reason,
    unsupported_layout_reason,
)
from symoptim.kernels.memory_layout import filter_layout, is_dense, same_memory_order
from symoptim.metric.factor_buffers import RowColumnFactors
from symoptim.optim.master_weights import State
from symoptim.optim.tensor_snapshot import local, reason_without_address
from symoptim.optim.validation import Group, labeled, warn_user
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update

STATE_COLUMNS = {"momentum_buffer": descriptor.BUFFER, "master": descriptor.WEIGHTS}
"""State that kernels use, and the column of the table that its address goes to."""
KINDS: dict[Update, int] = {
    PLAIN: descriptor.PLAIN,
    SCALED: descriptor.SCALED,
    UNIT_NORM: descriptor.UNIT_NORM,
}


def unsupported_reason(parameter: Tensor, gradient: Tensor, group: Group, update: Update) -> str | None:
    """Why a kernel cannot step a parameter, even if there are some for its device; or None if one can."""
    if update not in KINDS:
        return "there is no kernel for this update"
    if group["differentiable"]:
        return "autograd cannot follow a kernel (differentiable=True)"
    if there := reason_without_address(parameter):
        return there
    if there := reason_without_address(gradient):
        return f"of its gradient, {there}"
    mine, its = _kind(parameter), _kind(gradient)
    if mine != its:
        return f"its gradient is {its}, itself {mine}"
    if update is UNIT_NORM and group["weight_decay"]:
        return f"the kernel for unit-norm rows knows no weight decay (weight_decay={group['weight_decay']})"
    if parameter.is_neg() or gradient.is_neg():
        return "it is a lazily negated view, or its gradient is: resolve_neg() makes a tensor of it"
    if is_distributed(parameter) and update is not PLAIN:
        axis = axis_of(group, update)
        if not all(place.is_replicate() or place.is_shard(axis) for place in parameter.placements):
            return f"its filters are spread over processes ({parameter.placements})"
    weights, change = local(parameter.detach()), local(gradient)
    if not is_dense(weights):
        return f"it has gaps or overlaps in memory (strides {tuple(weights.stride())})"
    if not same_memory_order(weights, change):
        return f"its strides are {tuple(weights.stride())}, those of its gradient {tuple(change.stride())}"
    return unsupported_layout_reason(weights.device, filter_layout(weights, axis_of(group, update)))


def reason_without_kernel(parameter: Tensor) -> str | None:
    """Why there are no kernels for parameters like this one on this machine, or None if there are."""
    return unsupported_device_reason(parameter.device, kernel_dtype(parameter.device, parameter.dtype))


def require_kernels(group: Group) -> None:
    """Refuse a group that asks for fused steps where there are no kernels for its parameters.

    Parameters on the meta device are not anywhere yet: they are refused if they are still there when stepped.
    """
    if group["fused"]:
        for name, parameter in labeled(group):
            if not parameter.is_meta and (reason := reason_without_kernel(parameter)):
                raise OptionError(
                    f"{name} cannot take fused steps: {reason}. Or leave fused at None to have it stepped "
                    "otherwise"
                )


def _kind(tensor: Tensor, dtype: torch.dtype | None = None) -> str:
    """Shape, type and place of a tensor in words, as if it were of a given type."""
    spread = f", {tensor.placements} of {tensor.device_mesh}" if is_distributed(tensor) else ""
    return f"{tuple(tensor.shape)} of {dtype or tensor.dtype} on {tensor.device}{spread}"


def axis_of(group: Group, update: Update) -> int | None:
    """The axis that counts filters; none where the update knows no filters."""
    if update is PLAIN:
        return None
    return group["axis"] if group["geometry"] == "rows" else 1 - group["axis"]


@functools.cache
def _warn_of_slow_steps(reason: str) -> None:
    """Say, once in a process, that there could be kernels."""
    warn_user(
        f"parameters on the CPU are stepped by torch's operations, which is slower: {reason}; or say "
        "fused=False",
        SlowWarning,
    )


def cannot_move(parameter: Tensor, axis: int | None, update: Update) -> bool:
    """Whether filters are of unit norm and have one entry: kernels would move them by what is rounded."""
    return update is UNIT_NORM and axis is not None and parameter.numel() == parameter.shape[axis]


def unsupported_state(parameter: Tensor, state: State) -> str | None:
    """Why a kernel cannot step a parameter with this state, or None if it can."""
    for key in STATE_COLUMNS:
        kept = state.get(key)
        if kept is None:
            continue
        if _kind(kept) != _kind(parameter, update_dtype(parameter.dtype)):
            return f"its {key} is {_kind(kept)}"
        if reason := reason_without_address(kept):
            return f"of its {key}, {reason}"
    return None


def wants_fused(group: Group) -> bool:
    """Whether parameters of a group are to be stepped by kernels where there are some."""
    return group["fused"] is not False and (group["fused"] is True or group["foreach"] is None)


def fusable_parameters(
    group: Group,
    update: Update,
    factors: Mapping[Tensor, RowColumnFactors | None],
    state: Mapping[Tensor, State],
) -> set[Tensor]:
    """Parameters of a group with a gradient that kernels can step."""
    found: set[Tensor] = set()
    if not wants_fused(group):
        return found
    for name, parameter in labeled(group):
        if parameter.grad is not None:
            reason = unsupported_reason(parameter, parameter.grad, group, update)
            reason = reason or unsupported_state(parameter, state.get(parameter, {}))
            reason = reason or reason_without_kernel(parameter)
            if reason is not None and reason == numba_missing_reason():
                _warn_of_slow_steps(reason)
            if reason is None and parameter in factors and factors[parameter] is None:
                reason = "its scales are not those of rows and columns, or there is no kernel that finds them"
            if reason is None:
                found.add(parameter)
            elif group["fused"]:
                raise OptionError(
                    f"{name} cannot take a fused step: {reason}. Leave fused at None to have it stepped "
                    "otherwise"
                )
    return found


def without_shared_memory(groups: Sequence[Group], fusable: Sequence[set[Tensor]]) -> list[set[Tensor]]:
    """Fusable parameters less those that share memory: threads would step it at the same time."""
    found: list[tuple[int, int, str, Tensor, Group]] = []
    for group, mine in zip(groups, fusable, strict=True):
        for name, parameter in labeled(group):
            here = local(parameter.detach())
            if parameter in mine and here.numel():
                start = here.data_ptr()
                found.append((start, start + here.nbytes, name, parameter, group))
    found.sort(key=lambda one: one[0])
    shared: set[Tensor] = set()
    reach, furthest = 0, 0
    for index, (start, end, name, parameter, group) in enumerate(found):
        if start < reach:
            other, owner = found[furthest][3], found[furthest][4]
            if group["fused"] or owner["fused"]:
                raise OptionError(
                    f"{found[furthest][2]} and {name} share memory, which a fused step cannot take: leave "
                    "fused at None"
                )
            shared |= {parameter, other}
        if end > reach:
            reach, furthest = end, index
    return [mine - shared for mine in fusable]
