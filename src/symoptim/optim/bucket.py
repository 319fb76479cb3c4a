"""Parameters that are stepped by one launch: where all they need is, and whether it still is there."""

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symoptim.geometry.filters import update_dtype
from symoptim.kernels import table as columns
from symoptim.kernels.dispatch import Numbers, dtype_there, launcher
from symoptim.kernels.lay import lay_of
from symoptim.metric.sides import Sides
from symoptim.optim.places import Memory, address_of, local
from symoptim.optim.precision import State, working_weights
from symoptim.optim.watch import Change, watch

KEPT = {"momentum_buffer": columns.BUFFER, "master": columns.WEIGHTS}
"""State that kernels use, and the column of the table that its address goes to."""
_kept_in: Callable[[State, str], object] = dict[str, Any].get


class Entry(NamedTuple):
    """A parameter that a kernel steps."""

    parameter: Tensor
    state: State
    group: int
    """Row of the table of numbers: that of its group, or the last one if it cannot move."""
    kind: int
    """Its update, as kernels know it."""
    axis: int | None
    """The axis that counts its filters; none where the update knows no filters."""
    sides: Sides | None = None
    """Factors of its gradient by rows and columns, in the full metric."""

    def written(self) -> list[Tensor]:
        """What is written when it is stepped."""
        kept = (self.state.get(name) for name in KEPT)
        return [self.parameter.detach(), *(tensor for tensor in kept if tensor is not None)]


class Bucket:
    """Parameters on one device and of one precision.

    What kernels need is written into a table once. From then on a step only looks whether parameters, state
    and gradients are where they were; new gradients cost new addresses, anything else a new bucket.
    """

    def __init__(self, entries: Sequence[Entry], written: Memory, *, buffered: bool) -> None:
        """Write the table.

        Args:
            entries: the parameters, with gradients, momentum buffers and master copies.
            written: what a step writes, of these and others.
            buffered: whether they are stepped with momentum.
        """
        self.whole = [entry.parameter for entry in entries]
        self.states = [entry.state for entry in entries]
        self.sides = [entry.sides for entry in entries]  # kernels know but their addresses
        first = local(self.whole[0])
        self.device, self.dtype = first.device, first.dtype
        used = {"momentum_buffer": buffered, "master": update_dtype(self.dtype) != self.dtype}
        self.kept = [name for name in KEPT if used[name]]
        self.watch = watch(self._placed(), len(self.whole))
        table = torch.tensor([self._row(entry) for entry in entries], device="cpu")
        self.read_as = dtype_there(self.device, self.dtype)
        self.launcher = launcher(self.device, self.read_as, table)
        self.written = written
        self.sizes = torch.tensor([gradient.nbytes for gradient in self._gradients()], device="cpu")
        self._point_at_gradients()

    def _placed(self) -> list[Any]:
        """Parameters, and what is kept of them now.

        State itself is not held on to: whoever puts it elsewhere, to save memory, has that memory at once.
        """
        kept = (map(_kept_in, self.states, repeat(name)) for name in self.kept)
        return [*self.whole, *chain.from_iterable(kept)]

    def _row(self, entry: Entry) -> list[int]:
        row = [0] * columns.WIDTH
        row[columns.PARAMETER] = row[columns.WEIGHTS] = address_of(entry.parameter)
        for name in self.kept:
            row[KEPT[name]] = address_of(entry.state[name])
        row[columns.OUTER : columns.INNER + 1] = lay_of(local(entry.parameter), entry.axis)
        if entry.sides is not None:
            by_row, by_column, twice = entry.sides
            row[columns.OUTER : columns.INNER + 1] = 1, len(by_row), len(by_column)
            row[columns.ROWS], row[columns.COLUMNS] = by_row.data_ptr(), by_column.data_ptr()
            row[columns.TWICE] = int(twice)
        row[columns.KIND], row[columns.GROUP] = entry.kind, entry.group
        return row

    def _gradients(self) -> list[Tensor]:
        return [local(parameter.grad) for parameter in self.whole if parameter.grad is not None]

    def _point_at_gradients(self) -> None:
        self.launcher.point_at(self.watch.gradients)
        # Kernels read a part of a gradient when they have written other parts.
        self.are_aliased = self.written.has(self.watch.gradients, self.sizes)
        self.copies = self.read_as != self.dtype or bool(self.are_aliased.any())

    def is_ready(self) -> bool:
        """Whether parameters and state are where they were; gradients like the first may be anywhere."""
        change = self.watch.change(self._placed())
        if change is Change.GRADIENTS:
            self._point_at_gradients()
        return change is not Change.OTHER

    def copy_gradients(self) -> list[Tensor]:
        """Have kernels read copies where gradients are in memory that is written, or of another precision.

        Returns:
            What kernels read, if it is not the gradients themselves; to be kept until they have.
        """
        if not self.copies:
            return []
        both = zip(self._gradients(), self.are_aliased, strict=True)
        read = [gradient.to(self.read_as, copy=bool(is_aliased)) for gradient, is_aliased in both]
        self.launcher.point_at([gradient.data_ptr() for gradient in read])
        return read

    def step(
        self, numbers: Numbers, rates: Sequence[Tensor | None], scaling: tuple[Tensor, Tensor] | None
    ) -> None:
        """Step all parameters; see :class:`symoptim.kernels.dispatch.Launcher`."""
        if scaling is not None:
            scale, found = (one.to(self.device, non_blocking=True) for one in scaling)
            scaling = scale, found
        if self.read_as == self.dtype:
            self.launcher.launch(numbers, rates, scaling)
            return
        # Kernels know master copies only.
        masters = [local(state["master"]) for state in self.states]
        parameters = [local(parameter.detach()) for parameter in self.whole]
        for parameter, master in zip(parameters, masters, strict=True):
            master.copy_(working_weights(parameter, {"master": master}))
        self.launcher.launch(numbers, rates, scaling)
        for parameter, master in zip(parameters, masters, strict=True):
            parameter.copy_(master)
