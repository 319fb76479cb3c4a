"""Parameters that are stepped by one launch: where all they need is, and whether it still is there."""

import weakref
from collections.abc import Sequence
from itertools import chain
from operator import call, is_
from types import NoneType
from typing import NamedTuple, cast

import torch
from torch import Tensor

from symoptim.geometry.distributed import is_distributed
from symoptim.geometry.filters import update_dtype
from symoptim.kernels import table as columns
from symoptim.kernels.dispatch import Numbers, launcher
from symoptim.kernels.lay import lay_of
from symoptim.metric.sides import Sides
from symoptim.optim.places import Orders, Places, address_of, local, strides_of
from symoptim.optim.precision import State

KEPT = {"momentum_buffer": columns.BUFFER, "master": columns.WEIGHTS}
"""State that kernels use, and the column of the table that its address goes to."""


class Entry(NamedTuple):
    """A parameter that a kernel steps."""

    parameter: Tensor
    state: State
    group: int
    """Number of its group."""
    kind: int
    """Its update, as kernels know it."""
    axis: int | None
    """The axis that counts its filters; none where the update knows no filters."""
    sides: Sides | None = None
    """Factors of its gradient by rows and columns, in the full metric."""


def _spread(gradients: Sequence[Tensor]) -> list[object]:
    """How gradients are spread over processes."""
    return [(one.placements, one.device_mesh) if is_distributed(one) else None for one in gradients]


def _forms(gradients: Sequence[Tensor]) -> list[object] | None:
    """What kernels rely on of gradients besides where they are; None if some do not lie in memory at all."""
    try:
        strides = list(map(Tensor.stride, gradients))
    except RuntimeError:  # a sparse one
        return None
    # Strides and number of entries leave but one shape that fills its memory.
    numbers, negated = list(map(Tensor.numel, gradients)), list(map(Tensor.is_neg, gradients))
    return [strides, numbers, negated, [one.dtype for one in gradients]]


def form_of(gradient: Tensor | None) -> object:
    """What decides whether a kernel can take a gradient."""
    if gradient is None or gradient.layout is not torch.strided:
        return gradient is None
    return gradient.shape, gradient.dtype, strides_of(gradient)


class Bucket:
    """Parameters on one device and of one precision.

    What kernels need is written into a table once. From then on a step only looks whether parameters, state
    and gradients are where they were; new gradients cost new addresses, anything else a new bucket.
    """

    def __init__(self, entries: Sequence[Entry], *, buffered: bool) -> None:
        """Write the table.

        Args:
            entries: the parameters, with gradients, momentum buffers and master copies.
            buffered: whether they are stepped with momentum.
        """
        self.whole = [entry.parameter for entry in entries]
        self.distributed = any(map(is_distributed, self.whole))
        self.states = [entry.state for entry in entries]
        self.sides = [entry.sides for entry in entries]  # kernels know but their addresses
        first = local(self.whole[0])
        self.device, self.dtype = first.device, first.dtype
        used = {"momentum_buffer": buffered, "master": update_dtype(self.dtype) != self.dtype}
        self.kept = {name: [state[name] for state in self.states] for name in KEPT if used[name]}
        self.placed = [*self.whole, *chain.from_iterable(self.kept.values())]
        self.places, self.orders = Places(self.placed), Orders(self.placed)
        table = torch.tensor([self._row(*numbered) for numbered in enumerate(entries)], device="cpu")
        self.launcher = launcher(self.device, self.dtype, table)
        gradients = [entry.parameter.grad for entry in entries if entry.parameter.grad is not None]
        self.forms = self._forms(gradients)
        # Not the gradients themselves, which would be kept from being freed.
        self.known = list(map(weakref.ref, gradients))
        self.gradient_places, self.gradient_orders = Places(gradients), Orders(gradients)
        self.launcher.point_at(self.gradient_places.addresses)

    def _row(self, index: int, entry: Entry) -> list[int]:
        row = [0] * columns.WIDTH
        row[columns.PARAMETER] = row[columns.WEIGHTS] = address_of(entry.parameter)
        for name, kept in self.kept.items():
            row[KEPT[name]] = address_of(kept[index])
        row[columns.OUTER : columns.INNER + 1] = lay_of(local(entry.parameter), entry.axis)
        if entry.sides is not None:
            by_row, by_column, twice = entry.sides
            row[columns.OUTER : columns.INNER + 1] = 1, len(by_row), len(by_column)
            row[columns.ROWS], row[columns.COLUMNS] = by_row.data_ptr(), by_column.data_ptr()
            row[columns.TWICE] = int(twice)
        row[columns.KIND], row[columns.GROUP] = entry.kind, entry.group
        return row

    def is_ready(self) -> bool:
        """Whether parameters and state are where they were; gradients like the first may be anywhere."""
        for name, kept in self.kept.items():
            if not all(map(is_, [state.get(name) for state in self.states], kept)):
                return False
        if not self.places.hold(self.placed) or not self.orders.hold(self.placed):
            return False
        gradients = cast("list[Tensor]", [parameter.grad for parameter in self.whole])
        are_known = all(map(is_, gradients, map(call, self.known)))
        # What is no more is None, as is no gradient, and nothing lies nowhere.
        if are_known and self.gradient_places.hold(gradients) and self.gradient_orders.hold(gradients):
            return True
        return NoneType not in map(type, gradients) and self._takes(gradients)

    def _takes(self, gradients: Sequence[Tensor]) -> bool:
        if self._forms(gradients) != self.forms:
            return False
        self._point_at(gradients)
        return True

    def _forms(self, gradients: Sequence[Tensor]) -> object:
        if self.distributed:
            return _spread(gradients), _forms(list(map(local, gradients)))
        return _forms(gradients)

    def _point_at(self, gradients: Sequence[Tensor]) -> None:
        self.known = list(map(weakref.ref, gradients))
        addresses = self.gradient_places.now(gradients)
        if addresses != self.gradient_places.addresses:
            self.gradient_places.addresses = addresses
            self.launcher.point_at(addresses)

    def step(
        self, numbers: Numbers, rates: Sequence[Tensor | None], scaling: tuple[Tensor, Tensor] | None
    ) -> None:
        """Step all parameters; see :class:`symoptim.kernels.dispatch.Launcher`."""
        if scaling is not None:
            scale, found = (one.to(self.device, non_blocking=True) for one in scaling)
            scaling = scale, found
        self.launcher.launch(numbers, rates, scaling)
