"""Fused steps of an optimizer: which parameters kernels take, and which are left to the reference."""

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import is_

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Optimizer

from symoptim.kernels.numbers import STILL, numbers_of, rate_elsewhere
from symoptim.metric.sides import Sides
from symoptim.optim.apply import make_state, state_of
from symoptim.optim.bucket import Bucket, Entry
from symoptim.optim.checks import Group
from symoptim.optim.fusible import KINDS, axis_of, cannot_move, taken_of, without_shared
from symoptim.optim.places import Memory, form_of
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
        taken = [taken_of(group, updates[group["geometry"]], sides, optimizer.state) for group in self.groups]
        taken = without_shared(self.groups, taken)
        self.left = [
            [p for p in group["params"] if p.grad is not None and p not in kept]
            for group, kept in zip(self.groups, taken, strict=True)
        ]
        """By group, parameters with a gradient that kernels do not take."""
        entries = self._entries(optimizer, updates, sides, taken)
        written = Memory(chain.from_iterable(one.written() for some in entries.values() for one in some))
        self.buckets = [
            Bucket(some, written, buffered=buffered) for (_, _, buffered), some in entries.items()
        ]
        stepped = {parameter for bucket in self.buckets for parameter in bucket.whole}
        self.others = [parameter for parameter in self.parameters if parameter not in stepped]
        self.forms = [form_of(parameter.grad) for parameter in self.others]
        self.stepped = [parameter for parameter in self.parameters if parameter in stepped]
        self.states: list[State] = list(optimizer.state.values())
        self.has_state = any(bucket.kept for bucket in self.buckets)

    def _entries(
        self,
        optimizer: Optimizer,
        updates: Mapping[Geometry, Update],
        sides: Mapping[Tensor, Sides | None],
        taken: Sequence[set[Tensor]],
    ) -> dict[tuple[torch.device, torch.dtype, bool], list[Entry]]:
        """Parameters that are taken, by device, precision and whether they have momentum."""
        places: dict[tuple[torch.device, torch.dtype, bool], list[Entry]] = {}
        for number, (group, kept) in enumerate(zip(self.groups, taken, strict=True)):
            update = updates[group["geometry"]]
            for parameter in group["params"]:
                if parameter in kept:
                    buffered = bool(group["momentum"])
                    state = state_of(parameter, optimizer.state, momentum=buffered)
                    make_state(parameter, state, momentum=buffered)
                    lay_like(parameter, state)
                    axis, factors = axis_of(group, update), sides.get(parameter)
                    row = len(self.groups) if cannot_move(parameter, axis, update) else number
                    entry = Entry(parameter, state, row, KINDS[update], axis, factors)
                    places.setdefault((parameter.device, parameter.dtype, buffered), []).append(entry)
        return places

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
        # Values are looked at, not keys: to look a tensor up takes longer than all the rest.
        if self.has_state and not (
            len(state) == len(self.states) and all(map(is_, state.values(), self.states))
        ):
            return False
        # Parameters without a gradient may get one, and others one that a kernel can take.
        if [form_of(parameter.grad) for parameter in self.others] != self.forms:
            return False
        if not all(map(is_, chain.from_iterable(group["params"] for group in groups), self.parameters)):
            return False
        return all(bucket.is_ready() for bucket in self.buckets)

    def step(self, scaling: tuple[Tensor, Tensor] | None = None) -> None:
        """Step all parameters that are taken.

        Args:
            scaling: what the loss was multiplied by, and whether that was too much.
        """
        if not self.buckets:
            return
        numbers = [*map(numbers_of, self.groups), STILL]
        rates = [*map(rate_elsewhere, self.groups), None]
        copies = [bucket.copy_gradients() for bucket in self.buckets]
        for bucket in self.buckets:
            bucket.step(numbers, rates, scaling)
        del copies  # after the launch, which reads them
        # As an operation of torch's own would: autograd refuses to use what has been overwritten.
        increment_version(self.stepped)


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
