"""Fused steps: what kernels step lies in tables of addresses, made once and used while they are right."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from symoptim.geometry.tensors import update_dtype
from symoptim.kernels import descriptor
from symoptim.kernels.backend import Hyperparameters, kernel_dtype, launcher
from symoptim.kernels.descriptor import NO_STEP, hyperparameter_row, rate_on_device
from symoptim.kernels.memory_layout import filter_layout
from symoptim.metric.factor_buffers import RowColumnFactors
from symoptim.optim.amp import LossScaling
from symoptim.optim.fused_support import (
    KINDS,
    STATE_COLUMNS,
    axis_of,
    cannot_move,
    fusable_parameters,
    without_shared_memory,
)
from symoptim.optim.master_weights import State, make_state, match_layout, state_of, working_weights
from symoptim.optim.tensor_snapshot import Change, TensorSnapshot, form_of, local
from symoptim.optim.validation import Group
from symoptim.routing import Geometry
from symoptim.updates.catalog import Update

Updates = Mapping[Geometry, Update]
Factors = Mapping[Tensor, RowColumnFactors | None]


class FusedSteps:
    """The parameters of an optimizer that kernels step, as they are now."""

    def __init__(
        self, groups: Sequence[Group], state: dict[Tensor, State], updates: Updates, factors: Factors
    ) -> None:
        """Sort all parameters that have a gradient, make their state, and write the tables.

        Args:
            groups: of the optimizer.
            state: its state; that of fused parameters is made.
            updates: of every geometry.
            factors: what gradients are multiplied by, by row and column; None for parameters whose factors
                are not of that kind.

        Raises:
            OptionError: a parameter of a group with ``fused=True`` cannot be stepped by a kernel.
        """
        self._groups = list(groups)
        self._signature = _signature(groups)
        self._parameters = [p for group in groups for p in group["params"]]
        fusable = without_shared_memory(
            groups,
            [fusable_parameters(group, updates[group["geometry"]], factors, state) for group in groups],
        )
        self.fallback = [
            [p for p in group["params"] if p.grad is not None and p not in mine]
            for group, mine in zip(groups, fusable, strict=True)
        ]
        """By group, parameters with a gradient that the pure functions step."""
        rows = _table_rows(groups, state, updates, factors, fusable)
        written = MemoryRanges(chain.from_iterable(row.written() for some in rows.values() for row in some))
        self._tables = [FusedTable(some, written, buffered=key[2]) for key, some in rows.items()]
        stepped = {parameter for table in self._tables for parameter in table.parameters}
        self.stepped = [parameter for parameter in self._parameters if parameter in stepped]
        # Parameters without a gradient may get one, and others one that a kernel can take.
        self._others = [parameter for parameter in self._parameters if parameter not in stepped]
        self._gradient_forms = [form_of(parameter.grad) for parameter in self._others]
        self._states = list(state.values()) if any(table.state_names for table in self._tables) else None

    def is_current(self, groups: Sequence[Group], state: Mapping[Tensor, State]) -> bool:
        """Whether all is as it was but values, and perhaps the addresses of gradients."""
        if len(groups) != len(self._groups) or not all(map(is_, groups, self._groups)):
            return False
        if _signature(groups) != self._signature:
            return False
        # Values are compared, not keys: to look a tensor up takes longer than all the rest.
        if self._states is not None and not (
            len(state) == len(self._states) and all(map(is_, state.values(), self._states))
        ):
            return False
        if [form_of(parameter.grad) for parameter in self._others] != self._gradient_forms:
            return False
        parameters = chain.from_iterable(group["params"] for group in groups)
        return all(map(is_, parameters, self._parameters)) and all(map(FusedTable.is_current, self._tables))

    def step(self, hyperparameters: Hyperparameters, scaling: LossScaling | None) -> None:
        """Step all fused parameters.

        Args:
            hyperparameters: of the groups, as :func:`.kernels.descriptor.hyperparameter_row` has them.
            scaling: what the loss was multiplied by, and whether that was too much.
        """
        if not self._tables:
            return
        rates = [*map(rate_on_device, self._groups), None]
        copies = [table.copy_gradients() for table in self._tables]
        for table in self._tables:
            table.step([*hyperparameters, NO_STEP], rates, scaling)
        del copies  # after the launch, which reads them
        # As an operation of torch's own would: autograd refuses to use what has been overwritten.
        increment_version(self.stepped)


def hyperparameters_of(groups: Iterable[Group]) -> Hyperparameters:
    """The options of a step as kernels take them; an error where one was set that is no number."""
    return list(map(hyperparameter_row, groups))


class TableRow(NamedTuple):
    """A parameter that a kernel steps."""

    parameter: Tensor
    state: State
    group: int
    """Row of the table of hyperparameters: that of its group, or the last one if it cannot move."""
    kind: int
    """Its update, as kernels know it."""
    axis: int | None
    """The axis that counts its filters; none where the update knows no filters."""
    factors: RowColumnFactors | None

    def written(self) -> list[Tensor]:
        """What is written when it is stepped."""
        state = (self.state.get(name) for name in STATE_COLUMNS)
        return [self.parameter.detach(), *(tensor for tensor in state if tensor is not None)]

    def encoded(self, state_names: Sequence[str]) -> list[int]:
        """Addresses, layout and update, by the columns of :mod:`symoptim.kernels.descriptor`."""
        row, weights = [0] * descriptor.WIDTH, local(self.parameter)
        row[descriptor.PARAMETER] = row[descriptor.WEIGHTS] = weights.data_ptr()
        for name in state_names:
            row[STATE_COLUMNS[name]] = local(self.state[name]).data_ptr()
        row[descriptor.OUTER : descriptor.INNER + 1] = filter_layout(weights, self.axis)
        if self.factors is not None:
            by_row, by_column, twice = self.factors
            row[descriptor.OUTER : descriptor.INNER + 1] = 1, len(by_row), len(by_column)
            row[descriptor.ROWS], row[descriptor.COLUMNS] = by_row.data_ptr(), by_column.data_ptr()
            row[descriptor.SQUARED] = int(twice)
        row[descriptor.KIND], row[descriptor.GROUP] = self.kind, self.group
        return row


class FusedTable:
    """Parameters on one device and of one precision, which one launch steps."""

    def __init__(self, rows: Sequence[TableRow], written: "MemoryRanges", *, buffered: bool) -> None:
        """Write the table.

        Args:
            rows: the parameters, with gradients, momentum buffers and master copies.
            written: memory that a step writes, of these and others.
            buffered: whether they are stepped with momentum.
        """
        self.parameters = [row.parameter for row in rows]
        self._states = [row.state for row in rows]
        self._factors = [row.factors for row in rows]  # kernels know but their addresses
        first = local(self.parameters[0])
        self._device, self._dtype = first.device, first.dtype
        used = {"momentum_buffer": buffered, "master": update_dtype(self._dtype) != self._dtype}
        self.state_names = [name for name in STATE_COLUMNS if used[name]]
        self._snapshot = TensorSnapshot(self.parameters, self._state_tensors())
        self._read_as = kernel_dtype(self._device, self._dtype)
        table = torch.tensor([row.encoded(self.state_names) for row in rows], device="cpu")
        self._launcher = launcher(self._device, self._read_as, table)
        self._written = written
        self._sizes = torch.tensor([gradient.nbytes for gradient in self._gradients()], device="cpu")
        self._point_at_gradients()

    def is_current(self) -> bool:
        """Whether parameters and state are where they were; gradients of the same form may be anywhere."""
        change = self._snapshot.change(self.parameters, self._state_tensors())
        if change is Change.GRADIENTS:
            self._point_at_gradients()
        return change is not Change.OTHER

    def _state_tensors(self) -> list[Any]:
        # Looked up every time: whoever puts state elsewhere, to save memory, has that memory at once.
        return [state.get(name) for name in self.state_names for state in self._states]

    def _gradients(self) -> list[Tensor]:
        return [local(parameter.grad) for parameter in self.parameters if parameter.grad is not None]

    def _point_at_gradients(self) -> None:
        addresses = self._snapshot.gradient_addresses
        self._launcher.set_gradient_pointers(addresses)
        # Kernels read a part of a gradient when they have written other parts.
        self._are_aliased = self._written.overlap(addresses, self._sizes)
        self._needs_copies = self._read_as != self._dtype or bool(self._are_aliased.any())

    def copy_gradients(self) -> list[Tensor]:
        """Have kernels read copies where gradients are in memory that is written, or of another precision.

        Returns:
            What kernels read, if it is not the gradients themselves; to be kept until they have.
        """
        if not self._needs_copies:
            return []
        both = zip(self._gradients(), self._are_aliased, strict=True)
        read = [gradient.to(self._read_as, copy=bool(is_aliased)) for gradient, is_aliased in both]
        self._launcher.set_gradient_pointers([gradient.data_ptr() for gradient in read])
        return read

    def step(
        self, numbers: Hyperparameters, rates: Sequence[Tensor | None], scaling: tuple[Tensor, Tensor] | None
    ) -> None:
        """Step all parameters; see :class:`symoptim.kernels.backend.Launcher`."""
        if scaling is not None:
            scale, found = (one.to(self._device, non_blocking=True) for one in scaling)
            scaling = scale, found
        if self._read_as == self._dtype:
            self._launcher.launch(numbers, rates, scaling)
            return
        # Kernels know master copies only.
        masters = [local(state["master"]) for state in self._states]
        parameters = [local(parameter.detach()) for parameter in self.parameters]
        for parameter, master in zip(parameters, masters, strict=True):
            master.copy_(working_weights(parameter, {"master": master}))
        self._launcher.launch(numbers, rates, scaling)
        for parameter, master in zip(parameters, masters, strict=True):
            parameter.copy_(master)


class MemoryRanges:
    """Memory of tensors that are written.

    >>> weights, row = torch.zeros(2, 4), torch.tensor(16)
    >>> second = [weights.data_ptr() + 16]
    >>> MemoryRanges([weights]).overlap(second, row), MemoryRanges([weights[:1]]).overlap(second, row)
    (tensor([True]), tensor([False]))
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        """Note down where they begin and end; they have no gaps."""
        here = map(local, tensors)
        ranges = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in here if one.numel())
        last = torch.iinfo(torch.int64).max  # no tensor is there
        with torch.device("cpu"):
            self._starts = torch.tensor([start for start, _ in ranges] + [last])
            self._ends = torch.tensor([end for _, end in ranges] + [last]).cummax(0).values

    def overlap(self, addresses: Sequence[int], sizes: Tensor) -> Tensor:
        """Whether any of so many bytes from these addresses on is among it, ``(n,)``."""
        first = torch.tensor(addresses, dtype=torch.int64, device="cpu")
        # The first range that ends behind an address: it begins before so many bytes are over, or none does.
        found = torch.searchsorted(self._ends, first, right=True).clamp_(max=len(self._ends) - 1)
        return self._starts[found] < first + sizes


def _table_rows(
    groups: Sequence[Group],
    state: dict[Tensor, State],
    updates: Updates,
    factors: Factors,
    fusable: Sequence[set[Tensor]],
) -> dict[tuple[torch.device, torch.dtype, bool], list[TableRow]]:
    """Fused parameters, their state made, by device, precision and whether they have momentum."""
    rows: dict[tuple[torch.device, torch.dtype, bool], list[TableRow]] = {}
    for number, (group, mine) in enumerate(zip(groups, fusable, strict=True)):
        update, buffered = updates[group["geometry"]], bool(group["momentum"])
        axis = axis_of(group, update)
        for parameter in group["params"]:
            if parameter in mine:
                own = state_of(parameter, state, momentum=buffered)
                make_state(parameter, own, momentum=buffered)
                match_layout(parameter, own)
                line = len(groups) if cannot_move(parameter, axis, update) else number
                row = TableRow(parameter, own, line, KINDS[update], axis, factors.get(parameter))
                rows.setdefault((parameter.device, parameter.dtype, buffered), []).append(row)
    return rows


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
