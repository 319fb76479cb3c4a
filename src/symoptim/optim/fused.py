"""Fused steps of an optimizer: which parameters kernels take, and which are left to the reference."""

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from symoptim.errors import OptionError
from symoptim.geometry.distributed import is_distributed
from symoptim.kernels import table as columns
from symoptim.kernels.dispatch import why_not_here, why_not_lying
from symoptim.kernels.lay import have_same_lay, is_dense, lay_of
from symoptim.metric.fused import Sides
from symoptim.optim.apply import make_state
from symoptim.optim.bucket import Bucket, Entry, local
from symoptim.optim.checks import Group, labeled
from symoptim.optim.precision import State, lay_like
from symoptim.routing import Geometry
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update

KINDS: dict[Update, int] = {PLAIN: columns.PLAIN, SCALED: columns.SCALED, UNIT_NORM: columns.UNIT}


class FusedSteps:
    """The parameters of an optimizer that kernels step, as they are now."""

    def __init__(
        self,
        optimizer: Optimizer,
        updates: Mapping[Geometry, Update],
        sides: Mapping[Tensor, Sides | None],
    ) -> None:
        """Look at all parameters that have a gradient.

        Args:
            optimizer: whose parameters they are; the state of those that are taken is made.
            updates: of every geometry.
            sides: factors that gradients are multiplied by, by row and column; none for parameters whose
                factors are not of that kind.

        Raises:
            OptionError: a parameter of a group with ``fused=True`` cannot be stepped by a kernel.
        """
        self.groups: list[Group] = optimizer.param_groups
        self.made_for = _signature(self.groups)
        self.parameters: list[Tensor] = [p for group in self.groups for p in group["params"]]
        self.without = [parameter.grad is None for parameter in self.parameters]
        taken = [_sorted(group, updates[group["geometry"]], sides) for group in self.groups]
        self.left = [
            [p for p in group["params"] if p.grad is not None and p not in kept]
            for group, kept in zip(self.groups, taken, strict=True)
        ]
        """By group, parameters with a gradient that kernels do not take."""
        self.buckets = self._buckets(optimizer, updates, sides, taken)
        self.states: list[State] = list(optimizer.state.values())

    def _buckets(
        self,
        optimizer: Optimizer,
        updates: Mapping[Geometry, Update],
        sides: Mapping[Tensor, Sides | None],
        taken: Sequence[set[Tensor]],
    ) -> list[tuple[list[int], Bucket]]:
        """Buckets, with where in all parameters theirs are."""
        places: dict[tuple[torch.device, torch.dtype, bool], list[tuple[int, Entry]]] = {}
        index = 0
        for number, (group, kept) in enumerate(zip(self.groups, taken, strict=True)):
            update = updates[group["geometry"]]
            for parameter in group["params"]:
                if parameter in kept:
                    state = optimizer.state[parameter]
                    buffered = bool(group["momentum"])
                    make_state(parameter, state, momentum=buffered)
                    lay_like(parameter, state)
                    axis, factors = _axis(group, update), sides.get(parameter)
                    entry = Entry(parameter, state, number, KINDS[update], axis, factors)
                    place = parameter.device, parameter.dtype, buffered
                    places.setdefault(place, []).append((index, entry))
                index += 1
        buckets: list[tuple[list[int], Bucket]] = []
        for (_, _, buffered), members in places.items():
            indices, entries = map(list, zip(*members, strict=True))
            gradients = [entry.parameter.grad for entry in entries]
            buckets.append((indices, Bucket(entries, gradients, buffered=buffered)))
        return buckets

    def fits(self, state: Mapping[Tensor, State]) -> bool:
        """Whether all is as it was but values, and perhaps gradients; ``state`` is the optimizer's."""
        if _signature(self.groups) != self.made_for:
            return False
        # Values are looked at, not keys: to look a tensor up takes longer than all the rest.
        if len(state) != len(self.states) or not all(map(is_, state.values(), self.states)):
            return False
        gradients = [parameter.grad for parameter in self.parameters]
        if list(map(is_, gradients, repeat(None))) != self.without:
            return False
        there = cast("list[Tensor]", gradients)  # those of buckets, which are not among those without
        if len(self.buckets) == 1 and len(self.buckets[0][0]) == len(there):
            return self.buckets[0][1].fits(there)
        return all(bucket.fits([there[i] for i in indices]) for indices, bucket in self.buckets)

    def step(self, scaling: tuple[Tensor, Tensor] | None = None) -> None:
        """Step all parameters that are taken.

        Args:
            scaling: what the loss was multiplied by, and whether that was too much.
        """
        for _, bucket in self.buckets:
            bucket.step(self.groups, scaling)


def _signature(groups: Sequence[Group]) -> list[tuple[object, ...]]:
    """What may not change of groups, besides their parameters."""
    return [
        (
            len(group["params"]),
            bool(group["momentum"]),
            group["geometry"],
            group["axis"],
            group["fused"],
            group["foreach"],
            group["differentiable"],
        )
        for group in groups
    ]


def wants_fused(group: Group) -> bool:
    """Whether parameters of a group are to be stepped by kernels where that can be."""
    return group["fused"] is not False and (group["fused"] is True or group["foreach"] is None)


def _sorted(group: Group, update: Update, sides: Mapping[Tensor, Sides | None]) -> set[Tensor]:
    """Parameters of a group that kernels can take."""
    taken: set[Tensor] = set()
    if not wants_fused(group):
        return taken
    for name, parameter in labeled(group):
        if parameter.grad is not None:
            reason = why_not(parameter, parameter.grad, group, update)
            if reason is None and parameter in sides and sides[parameter] is None:
                reason = "its scales are not those of rows and columns, or there is no kernel that finds them"
            if reason is None:
                taken.add(parameter)
            elif group["fused"]:
                raise OptionError(
                    f"{name} cannot take a fused step: {reason}. Leave fused at None to have it stepped "
                    "otherwise"
                )
    return taken


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
    if is_distributed(parameter) and update is not PLAIN:
        axis = _axis(group, update)
        if any(placement.is_shard() and not placement.is_shard(axis) for placement in parameter.placements):
            return f"its filters are spread over processes ({parameter.placements})"
    weights, change = local(parameter.detach()), local(gradient)
    if not is_dense(weights):
        return f"it has gaps or overlaps in memory (strides {tuple(weights.stride())})"
    if not have_same_lay(weights, change):
        return f"its strides are {tuple(weights.stride())}, those of its gradient {tuple(change.stride())}"
    return why_not_lying(weights.device, lay_of(weights, _axis(group, update)))


def _axis(group: Group, update: Update) -> int | None:
    """The axis that counts filters; none where the update knows no filters."""
    if update is PLAIN:
        return None
    return group["axis"] if group["geometry"] == "rows" else 1 - group["axis"]
