"""Fused steps of an optimizer: which parameters kernels take, and which are left to the reference."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from operator import is_

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Optimizer

from symoptim.kernels.numbers import numbers_of, rate_elsewhere
from symoptim.metric.sides import Sides
from symoptim.optim.apply import make_state
from symoptim.optim.bucket import Bucket, Entry
from symoptim.optim.checks import Group, check_gradients
from symoptim.optim.fusible import KINDS, axis_of, taken_of, without_shared
from symoptim.optim.places import form_of
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
        self.buckets: list[Bucket] = []
        self.late: list[Bucket] = []
        """Those of which it is looked late whether they can be stepped, when others have been."""
        for (_, _, buffered), entries in self._entries(optimizer, updates, sides, taken).items():
            # With a metric, which is of all weights, nothing may be stepped before all has been looked at.
            first, rest = (entries, []) if sides else _parted(entries)
            self.buckets.append(Bucket(first, buffered=buffered))
            self.late += [Bucket(rest, buffered=buffered)] if rest else []
        self.first = [parameter for bucket in self.buckets for parameter in bucket.whole]
        places = {p: (n, place) for n, g in enumerate(self.groups) for place, p in enumerate(g["params"])}
        self.places = [places[parameter] for parameter in self.first]
        stepped = {*self.first, *(parameter for bucket in self.late for parameter in bucket.whole)}
        self.others = [parameter for parameter in self.parameters if parameter not in stepped]
        self.forms = [form_of(parameter.grad) for parameter in self.others]
        self.stepped = [parameter for parameter in self.parameters if parameter in stepped]
        self.states: list[State] = list(optimizer.state.values())
        self.has_state = any(bucket.kept for bucket in (*self.buckets, *self.late))
        self.is_current = True

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
                    state = optimizer.state[parameter]
                    buffered = bool(group["momentum"])
                    make_state(parameter, state, momentum=buffered)
                    lay_like(parameter, state)
                    axis, factors = axis_of(group, update), sides.get(parameter)
                    entry = Entry(parameter, state, number, KINDS[update], axis, factors)
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
        if not self.is_current or len(groups) != len(self.groups) or not all(map(is_, groups, self.groups)):
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
        if not (self._has_first() if self.late else self._has_all()):
            return False
        return all(bucket.is_ready() for bucket in self.buckets)

    def _has_first(self) -> bool:
        """Whether the parameters that are stepped first are still those of the optimizer."""
        there = [self.groups[group]["params"][place] for group, place in self.places]
        return all(map(is_, there, self.first))

    def _has_all(self) -> bool:
        """Whether all parameters are still those of the optimizer."""
        there = chain.from_iterable(group["params"] for group in self.groups)
        return all(map(is_, there, self.parameters))

    def step(self, scaling: tuple[Tensor, Tensor] | None = None) -> list[list[Tensor]]:
        """Step all parameters that are taken.

        Most of the entries are in few tensors: while a device is at work on these, the host looks whether the
        many others are where they were. If one of these has moved, the step has begun: they are left to
        the reference this time, and an error of the reference comes late.

        Args:
            scaling: what the loss was multiplied by, and whether that was too much.

        Returns:
            By group, parameters with a gradient that are not stepped: those that kernels do not take, and any
            that have been put elsewhere, which the next step finds again.
        """
        if not self.buckets:
            return self.left
        numbers, rates = list(map(numbers_of, self.groups)), list(map(rate_elsewhere, self.groups))
        for bucket in self.buckets:
            bucket.step(numbers, rates, scaling)
        if self.late and not (self._has_all() and all(bucket.is_ready() for bucket in self.late)):
            return self._interrupted()
        for bucket in self.late:
            bucket.step(numbers, rates, scaling)
        # As an operation of torch's own would: autograd refuses to use what has been overwritten.
        increment_version(self.stepped)
        return self.left

    def _interrupted(self) -> list[list[Tensor]]:
        """By group, all parameters but those that have been stepped first."""
        increment_version(self.first)
        check_gradients(self.groups)
        self.is_current = False
        done = set(self.first)
        return [[p for p in group["params"] if p not in done] for group in self.groups]


def _parted(entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The largest parameters and the others, if these are many.

    On CPUs there are no others: kernels there are at work as long as they are called. Elsewhere these stay in
    order, which mostly is that of memory. When caches are full of something else, as after a backward pass,
    a host looks at ResNet-50's in a tenth less time than by size (AMD EPYC, torch 2.13).
    """
    if not entries[0].parameter.is_cuda:
        return entries, []
    sizes = [entry.parameter.numel() for entry in entries]
    by_size = sorted(range(len(entries)), key=sizes.__getitem__, reverse=True)
    large = by_size[: _large([sizes[place] for place in by_size])]
    rest = sorted(set(by_size) - set(large))
    return [entries[place] for place in large], [entries[place] for place in rest]


def _large(sizes: list[int]) -> int:
    """How many of the largest tensors have four fifths of all entries; all, if that is more than a quarter.

    >>> _large([90, 6, 2, 2]), _large([30, 30, 20, 20])
    (1, 4)
    """
    large = next((n for n, held in enumerate(accumulate(sizes), 1) if 5 * held >= 4 * sum(sizes)), 0)
    return large if 0 < large <= len(sizes) // 4 else len(sizes)


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
