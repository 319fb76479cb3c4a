"""Parameters that are stepped by one launch: where all they need is, and whether it still is there."""

import weakref
from collections.abc import Sequence
from itertools import chain
from operator import is_
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from symoptim.geometry.distributed import is_distributed
from symoptim.geometry.filters import update_dtype
from symoptim.kernels import table as columns
from symoptim.kernels.dispatch import launcher
from symoptim.kernels.lay import lay_of
from symoptim.kernels.numbers import numbers_of, rate_elsewhere
from symoptim.metric.fused import Sides
from symoptim.optim.checks import Group
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


def local(tensor: Tensor) -> Tensor:
    """The tensor itself, or this process's part of it."""
    return tensor.to_local() if is_distributed(tensor) else tensor


Sight = list[tuple[int, torch.Size, tuple[int, ...], torch.dtype]]


def sight(tensors: Sequence[Tensor]) -> Sight:
    """What kernels rely on: where tensors are, how they lie there, and of what type their entries are."""
    return [(one.data_ptr(), one.shape, one.stride(), one.dtype) for one in tensors]


class Bucket:
    """Parameters on one device and of one precision.

    What kernels need is written into a table once. From then on a step only looks whether parameters, state
    and gradients are where they were; new gradients cost new addresses, anything else a new bucket.
    """

    def __init__(self, entries: Sequence[Entry], gradients: list[Tensor], *, buffered: bool) -> None:
        """Write the table.

        Args:
            entries: the parameters, with their momentum buffers and master copies.
            gradients: theirs.
            buffered: whether they are stepped with momentum.
        """
        self.whole = [entry.parameter for entry in entries]
        self.distributed = any(map(is_distributed, self.whole))
        self.states = [entry.state for entry in entries]
        parameters = self._local(self.whole)
        self.device, self.dtype = parameters[0].device, parameters[0].dtype
        used = {"momentum_buffer": buffered, "master": update_dtype(self.dtype) != self.dtype}
        self.kept = {name: [state[name] for state in self.states] for name in KEPT if used[name]}
        self.addresses = [parameter.data_ptr() for parameter in parameters]
        self.seen = sight(parameters)
        self.kept_seen = {name: sight(self._local(kept)) for name, kept in self.kept.items()}
        rows = [self._row(index, entry) for index, entry in enumerate(entries)]
        self.table = torch.tensor(rows, device="cpu")
        self._point_at(gradients)
        self.launcher = launcher(self.device, self.dtype, self.table)

    def _local(self, tensors: list[Tensor]) -> list[Tensor]:
        return list(map(local, tensors)) if self.distributed else tensors

    def _row(self, index: int, entry: Entry) -> list[int]:
        row = [0] * columns.WIDTH
        row[columns.PARAMETER] = row[columns.WEIGHTS] = self.addresses[index]
        for name, kept in self.kept.items():
            row[KEPT[name]] = local(kept[index]).data_ptr()
        row[columns.OUTER : columns.INNER + 1] = lay_of(local(entry.parameter), entry.axis)
        if entry.sides is not None:
            by_row, by_column, twice = entry.sides
            row[columns.OUTER : columns.INNER + 1] = 1, len(by_row), len(by_column)
            row[columns.ROWS], row[columns.COLUMNS] = by_row.data_ptr(), by_column.data_ptr()
            row[columns.TWICE] = int(twice)
        row[columns.KIND], row[columns.GROUP] = entry.kind, entry.group
        return row

    def fits(self, gradients: list[Tensor]) -> bool:
        """Whether all is as it was but the gradients; new ones like the last are taken over."""
        if sight(self._local(self.whole)) != self.seen:
            return False
        for name, kept in self.kept.items():
            if not all(map(is_, (state.get(name) for state in self.states), kept)):
                return False
            if sight(self._local(kept)) != self.kept_seen[name]:
                return False
        if all(map(is_, gradients, [known() for known in self.known])):
            return sight(self._local(gradients)) == self.pointed
        return self._has_pointed_at(gradients)

    def _has_pointed_at(self, gradients: list[Tensor]) -> bool:
        """Take over new gradients if they are like the last."""
        if self.distributed:
            return False  # how they are spread has to be looked at again
        if any(one.layout is not torch.strided or one.is_neg() for one in gradients):
            return False
        if [one[1:] for one in sight(gradients)] != [one[1:] for one in self.pointed]:
            return False
        self._point_at(gradients)
        self.launcher.point_at(self.table)
        return True

    def _point_at(self, gradients: list[Tensor]) -> None:
        # Not the gradients themselves, which would be kept from being freed.
        self.known = [weakref.ref(gradient) for gradient in gradients]
        self.pointed = sight(self._local(gradients))
        self.table[:, columns.GRADIENT] = torch.tensor([one[0] for one in self.pointed], device="cpu")

    def step(self, groups: Sequence[Group], scaling: tuple[Tensor, Tensor] | None) -> None:
        """Step all parameters with the options their groups have now.

        Args:
            groups: of the optimizer.
            scaling: what the loss was multiplied by, and whether that was too much.
        """
        if scaling is not None:
            scale, found = (one.to(self.device, non_blocking=True) for one in scaling)
            scaling = scale, found
        self.launcher.launch(list(map(numbers_of, groups)), list(map(rate_elsewhere, groups)), scaling)
        # As an operation of torch's own would: autograd refuses to use what has been overwritten.
        increment_version([*self.whole, *chain.from_iterable(self.kept.values())])
