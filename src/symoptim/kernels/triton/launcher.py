# pyright: basic, reportMissingImports=false
"""Steps on CUDA devices: a launch for each kind of rows among all tensors, recorded as one graph.

The host never waits for the device. Tables are copied to it when addresses have changed. After the first step
of a kind its launches are replayed from a graph with two branches that run concurrently: the host makes one
call.
"""

from array import array
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, repeat
from operator import is_
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.geometry.tensors import update_dtype
from symoptim.kernels.backend import Hyperparameters
from symoptim.kernels.descriptor import BUFFER, COLUMNS, GRADIENT, KIND, PARAMETER, RATE, UNIT_NORM
from symoptim.kernels.triton import columns, rows
from symoptim.kernels.triton.common import TYPES
from symoptim.kernels.triton.graph import DeviceConstant, DeviceSlot, keep_alive, record
from symoptim.kernels.triton.tiling import WARPS, RowTiling, row_programs, split_programs
from symoptim.kernels.triton.warmup import Launch, compile_all

CACHED_TABLES = 8
GradScale = tuple[Tensor, Tensor]
"""The scale of the loss, and whether it was too large."""


class Inputs(NamedTuple):
    """What kernels read besides the tensors, on the device."""

    table: Tensor
    numbers: Tensor
    scaling: GradScale | None


class Table(NamedTuple):
    """A table of addresses."""

    pinned: Tensor
    is_aligned: bool
    """Whether all addresses are multiples of 16 bytes."""


class CudaLauncher:
    """Steps tensors of one precision on one device."""

    def __init__(self, table: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        """Divide the tensors of the table among programs."""
        self.device = device
        wide = update_dtype(dtype)
        self.constants = {
            "TYPE": TYPES[wide],
            "PARAM_TYPE": None if wide == dtype else TYPES[dtype],
            "HAS_MOMENTUM": bool((table[:, BUFFER] != 0).any()),
        }
        self.has_metric = bool((table[:, COLUMNS] != 0).any())
        self.rows = [(tiling, DeviceConstant(some, device)) for tiling, some in row_programs(table).items()]
        split, scratch = split_programs(table)
        self.split = DeviceConstant(split, device)
        self.scratch = torch.empty(scratch, dtype=torch.float64, device=device)
        self.normalizes_split = bool((table[split[:, 0], KIND] == UNIT_NORM).any())
        self.side_stream: torch.cuda.Stream | None = None
        self.host_table = table  # without gradients
        self.others_aligned = bool((table[:, : PARAMETER + 1] % 16 == 0).all())
        self.tables: dict[tuple[int, ...], Table] = {}  # by the addresses of gradients
        self.table, self.numbers = DeviceSlot(device), DeviceSlot(device)
        self.put_numbers: tuple[Hyperparameters, list[bool]] | None = None
        self.scaling: GradScale | None = None
        self.graphs: dict[tuple[bool, bool], torch.cuda.CUDAGraph | None] = {}
        self.last: tuple[Hyperparameters, torch.cuda.CUDAGraph] | None = (
            None  # a graph, and the numbers it will read
        )

    def set_gradient_pointers(self, gradients: Sequence[int]) -> None:
        """Use gradients at these addresses; they often come back to where they were."""
        key = tuple(gradients)
        if key not in self.tables:
            if len(self.tables) == CACHED_TABLES:
                del self.tables[next(iter(self.tables))]
            table = self.host_table.clone()
            table[:, GRADIENT] = torch.frombuffer(array("q", key), dtype=torch.int64)
            is_aligned = self.others_aligned and all(address % 16 == 0 for address in key)
            self.tables[key] = Table(table.pin_memory(), is_aligned)
        table, self.is_aligned = self.tables[key]
        self.table.put(table)
        self.last = None

    def launch(
        self, numbers: Hyperparameters, rates: Sequence[Tensor | None], scaling: GradScale | None
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.backend.Launcher`."""
        if not self.rows and not len(self.split):
            return  # all tensors are empty, and so would the graph be
        is_current = torch.cuda.current_device() == self.device.index
        with nullcontext() if is_current else torch.cuda.device(self.device):
            is_plain = scaling is None and all(map(is_, rates, repeat(None)))
            if torch.cuda.is_current_stream_capturing():
                keep_alive(self)
                self._enqueue(self._inputs(numbers, rates, scaling, captured=True))
            elif is_plain and self.last is not None and self.last[0] == numbers:
                self.last[1].replay()
            else:
                self.last = None  # after an error the slots may have other numbers
                graph = self._replay(self._inputs(numbers, rates, self._slots(scaling), captured=False))
                self.last = (numbers, graph) if is_plain and graph is not None else None

    def _inputs(
        self,
        numbers: Hyperparameters,
        rates: Sequence[Tensor | None],
        scaling: GradScale | None,
        *,
        captured: bool,
    ) -> Inputs:
        """Everything on the device; for a graph that is being captured, copies that no other step changes."""
        # A rate that is on a device is 0 in the numbers and is written to the slot: the same numbers with a
        # rate of 0 on the host have to be put again.
        put = numbers, [rate is None for rate in rates]
        if self.put_numbers != put:
            self.numbers.put(torch.tensor(numbers, dtype=torch.float64, device="cpu").pin_memory())
            self.put_numbers = put
        table, values = (slot.copy() if captured else slot.get() for slot in (self.table, self.numbers))
        for group, rate in enumerate(rates):
            if rate is not None:
                values[group, RATE].copy_(rate.reshape(()), non_blocking=True)
        return Inputs(table, values, scaling)

    def _slots(self, scaling: GradScale | None) -> GradScale | None:
        """The scale of the loss, where graphs read it."""
        if scaling is None:
            return None
        if self.scaling is None:
            self.scaling = scaling[0].clone(), scaling[1].clone()
        for slot, value in zip(self.scaling, scaling, strict=True):
            slot.copy_(value, non_blocking=True)
        return self.scaling

    def _replay(self, inputs: Inputs) -> torch.cuda.CUDAGraph | None:
        """Launch all of a step: kernel by kernel the first time, then at once, by the graph returned."""
        key = self.is_aligned, inputs.scaling is not None
        if key not in self.graphs:
            self._enqueue(inputs)
            self.graphs[key] = None
            return None
        graph = self.graphs[key]
        if graph is None:
            graph = self.graphs[key] = record(lambda: self._enqueue(inputs), self.device)
        graph.replay()
        return graph

    def _enqueue(self, inputs: Inputs) -> None:
        """Launch kernel by kernel; in a graph the first sequence concurrently with the others.

        With more branches a graph would not be faster on the device, and slower to launch.
        """
        first, *others = self.launches(inputs)
        rest = list(chain.from_iterable(others))
        if not torch.cuda.is_current_stream_capturing():
            compile_all([*first, *rest], self.device)
        elif rest:
            self._enqueue_concurrently(first, rest)
            return
        for launch in (*first, *rest):
            launch()

    def _enqueue_concurrently(self, first: list[Launch], rest: list[Launch]) -> None:
        if self.side_stream is None:
            # Only the first sequence may be of several kernels: these are not to wait for others.
            self.side_stream = torch.cuda.Stream(self.device, priority=-1)
        current = torch.cuda.current_stream(self.device)
        self.side_stream.wait_stream(current)
        with torch.cuda.stream(self.side_stream):
            for launch in first:
                launch()
        for launch in rest:
            launch()
        current.wait_stream(self.side_stream)

    def launches(self, inputs: Inputs) -> list[list[Launch]]:
        """Sequences of launches; only those of one sequence have to wait for each other."""
        split = [self._step_split(inputs)] if len(self.split) else []
        return [*split, *([self._step_rows(inputs, tiling, programs)] for tiling, programs in self.rows)]

    def _step_rows(self, inputs: Inputs, tiling: RowTiling, programs: DeviceConstant) -> Launch:
        """Step rows that programs have to themselves."""
        table, numbers, scaling = inputs
        kernel = rows.step_rows if tiling.in_registers else rows.step_long_rows
        arguments = table, programs.get(), numbers, *(scaling or (numbers, numbers))
        options = {
            **self.constants,
            "ALIGNED": tiling.is_even and self.is_aligned,
            "HAS_METRIC": self.has_metric,
            "HAS_GRAD_SCALE": scaling is not None,
            "LENGTH": tiling.length,
            "num_warps": tiling.warps,
        }
        return Launch(kernel, (len(programs),), arguments, options)

    def _step_split(self, inputs: Inputs) -> list[Launch]:
        """Step filters that are split among programs."""
        table, numbers, scaling = inputs
        scale, found_inf = scaling or (numbers, numbers)
        options = {**self.constants, "HAS_GRAD_SCALE": scaling is not None, "num_warps": WARPS}
        grid, programs, scratch = (len(self.split),), self.split.get(), self.scratch
        launches = [
            Launch(columns.partial_products, grid, (table, programs, scratch, scale, found_inf), options),
            Launch(columns.step, grid, (table, programs, numbers, scratch, scale, found_inf), options),
        ]
        if self.normalizes_split:
            options = {name: value for name, value in options.items() if name != "HAS_MOMENTUM"}
            launches.append(Launch(columns.normalize, grid, (table, programs, scratch, found_inf), options))
        return launches
