"""Fused steps of an optimizer: which parameters kernels take, and which are left to the reference."""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise, repeat
from operator import is_
from typing import cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from symoptim.errors import OptionError
from symoptim.metric.fused import Sides
from symoptim.optim.apply import make_state
from symoptim.optim.bucket import Bucket, Entry, local
from symoptim.optim.checks import Group, labeled
from symoptim.optim.fusible import KINDS, axis_of, why_not, why_not_with
from symoptim.optim.precision import State, lay_like
from symoptim.routing import Geometry
from symoptim.updates.catalog import Update


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
        self.groups: list[Group] = list(optimizer.param_groups)
        self.made_for = _signature(self.groups)
        self.parameters: list[Tensor] = [p for group in self.groups for p in group["params"]]
        self.without = [parameter.grad is None for parameter in self.parameters]
        taken = [_sorted(group, updates[group["geometry"]], sides, optimizer.state) for group in self.groups]
        _require_apart(self.groups, taken)
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
                    axis, factors = axis_of(group, update), sides.get(parameter)
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

    def fits(self, groups: Sequence[Group], state: Mapping[Tensor, State]) -> bool:
        """Whether all is as it was but values, and perhaps gradients.

        Args:
            groups: of the optimizer.
            state: its state.

        Returns:
            Whether a step can be taken.
        """
        if len(groups) != len(self.groups) or not all(map(is_, groups, self.groups)):
            return False
        if _signature(groups) != self.made_for:
            return False
        parameters = chain.from_iterable(group["params"] for group in groups)
        if not all(map(is_, parameters, self.parameters)):
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
            bool(group["weight_decay"]),
            group["geometry"],
            group["axis"],
            group["fused"],
            group["foreach"],
            group["differentiable"],
        )
        for group in groups
    ]


def wants_fused(group: Group) -> bool:
    """Whether parameters of a group are to be stepped by kernels."""
    return bool(group["fused"])


def _sorted(
    group: Group,
    update: Update,
    sides: Mapping[Tensor, Sides | None],
    state: Mapping[Tensor, State],
) -> set[Tensor]:
    """Parameters of a group that kernels can take."""
    taken: set[Tensor] = set()
    if not wants_fused(group):
        return taken
    for name, parameter in labeled(group):
        if parameter.grad is not None:
            reason = why_not(parameter, parameter.grad, group, update)
            reason = reason or why_not_with(parameter, state.get(parameter, {}))
            if reason is None and parameter in sides and sides[parameter] is None:
                reason = "its scales are not those of rows and columns, or there is no kernel that finds them"
            if reason is None:
                taken.add(parameter)
            else:
                raise OptionError(
                    f"{name} cannot take a fused step: {reason}. Leave fused at None to have it stepped "
                    "otherwise"
                )
    return taken


def _require_apart(groups: Sequence[Group], taken: Sequence[set[Tensor]]) -> None:
    """Refuse parameters that share memory: threads would step it at the same time."""
    found: list[tuple[str, int, int]] = []
    for group, kept in zip(groups, taken, strict=True):
        for name, parameter in labeled(group):
            here = local(parameter.detach())
            if parameter in kept and here.numel():
                start = here.data_ptr()
                found.append((name, start, start + here.numel() * here.element_size()))
    found.sort(key=lambda one: one[1])
    for (one, _, end), (other, start, _) in pairwise(found):
        if start < end:
            raise OptionError(
                f"{one} and {other} share memory, which a fused step cannot take: leave fused at None"
            )
