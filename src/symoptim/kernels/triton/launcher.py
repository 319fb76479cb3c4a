# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Steps on CUDA devices: a launch for each kind of rows among all tensors, recorded as one graph.

Nothing waits for the device. Tables are copied to it when addresses have changed. After the first step of a
kind its launches are replayed from a graph, in two branches that share the device: the host makes one call.
"""

from array import array
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, repeat
from operator import is_
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from symoptim.geometry.filters import update_dtype
from symoptim.kernels.dispatch import Numbers
from symoptim.kernels.numbers import RATE
from symoptim.kernels.table import BUFFER, COLUMNS, GRADIENT, KIND, PARAMETER, UNIT
from symoptim.kernels.triton import columns, long, rows
from symoptim.kernels.triton.graph import DeviceConstant, DeviceSlot, keep_alive, record
from symoptim.kernels.triton.tiling import WARPS, Kind, shared_programs, whole_programs
from symoptim.kernels.triton.warmup import Launch, compile_all

REMEMBERED = 8  # tables
TYPES: dict[torch.dtype, Any] = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


class Inputs(NamedTuple):
    """What kernels read besides the tensors, on the device."""

    table: Tensor
    numbers: Tensor
    scaling: tuple[Tensor, Tensor] | None


class Table(NamedTuple):
    """A table of addresses."""

    pinned: Tensor
    is_aligned: bool
    """Whether all addresses are multiples of 16 bytes."""


class CudaLauncher:
    """Steps tensors of one precision on one device."""

    def __init__(self, table: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        """Share the tensors of the table out among programs."""
        self.device = device
        wide = update_dtype(dtype)
        self.options = {
            "TYPE": TYPES[wide],
            "LOW": None if wide == dtype else TYPES[dtype],
            "BUFFERED": bool((table[:, BUFFER] != 0).any()),
        }
        self.is_factored = bool((table[:, COLUMNS] != 0).any())
        self.whole = [
            (kind, DeviceConstant(programs, device)) for kind, programs in whole_programs(table).items()
        ]
        shared, scratch = shared_programs(table)
        self.shared = DeviceConstant(shared, device)
        self.scratch = torch.empty(scratch, dtype=torch.float64, device=device)
        self.divides = bool((table[shared[:, 0], KIND] == UNIT).any())
        self.beside: torch.cuda.Stream | None = None
        self.host_table = table  # gradients aside
        self.others_aligned = bool((table[:, : PARAMETER + 1] % 16 == 0).all())
        self.tables: dict[tuple[int, ...], Table] = {}
        self.table, self.numbers = DeviceSlot(device), DeviceSlot(device)
        self.known: tuple[Numbers, list[bool]] | None = None
        self.scaling: tuple[Tensor, Tensor] | None = None
        self.graphs: dict[tuple[bool, bool], torch.cuda.CUDAGraph | None] = {}
        self.again: tuple[Numbers, torch.cuda.CUDAGraph] | None = None  # numbers there now, what reads them

    def point_at(self, gradients: Sequence[int]) -> None:
        """Use gradients at these addresses; they often come back to where they were."""
        key = tuple(gradients)
        if key not in self.tables:
            if len(self.tables) == REMEMBERED:
                del self.tables[next(iter(self.tables))]
            table = self.host_table.clone()
            table[:, GRADIENT] = torch.frombuffer(array("q", key), dtype=torch.int64)
            is_aligned = self.others_aligned and all(address % 16 == 0 for address in key)
            self.tables[key] = Table(table.pin_memory(), is_aligned)
        table, self.is_aligned = self.tables[key]
        self.table.put(table)
        self.again = None

    def launch(
        self, numbers: Numbers, rates: Sequence[Tensor | None], scaling: tuple[Tensor, Tensor] | None
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.dispatch.Launcher`."""
        if not self.whole and not len(self.shared.host):
            return  # all tensors are empty, and so would the graph be
        is_here = torch.cuda.current_device() == self.device.index
        with nullcontext() if is_here else torch.cuda.device(self.device):
            is_plain = scaling is None and all(map(is_, rates, repeat(None)))
            if torch.cuda.is_current_stream_capturing():
                keep_alive(self)
                self._enqueue(self._inputs(numbers, rates, scaling, captured=True))
            elif is_plain and self.again is not None and self.again[0] == numbers:
                self.again[1].replay()
            else:
                self.again = None  # an error may leave other numbers there
                graph = self._replay(self._inputs(numbers, rates, self._kept(scaling), captured=False))
                self.again = (numbers, graph) if is_plain and graph is not None else None

    def _inputs(
        self,
        numbers: Numbers,
        rates: Sequence[Tensor | None],
        scaling: tuple[Tensor, Tensor] | None,
        *,
        captured: bool,
    ) -> Inputs:
        """Everything on the device; a graph that is being captured gets what no other step writes to."""
        # Of a rate on the device the numbers say nothing, and a host's may be what they say instead.
        known = numbers, [rate is None for rate in rates]
        if self.known != known:
            self.numbers.put(torch.tensor(numbers, dtype=torch.float64, device="cpu").pin_memory())
            self.known = known
        table, values = (cell.copy() if captured else cell.get() for cell in (self.table, self.numbers))
        for group, rate in enumerate(rates):
            if rate is not None:
                values[group, RATE].copy_(rate.reshape(()), non_blocking=True)
        return Inputs(table, values, scaling)

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
        """Launch kernel by kernel; in a graph the first part beside the others.

        More branches would not make a graph faster on the device, and slower to launch.
        """
        first, *others = self._parts(inputs)
        rest = list(chain.from_iterable(others))
        if not torch.cuda.is_current_stream_capturing():
            compile_all([*first, *rest], self.device)
        elif rest:
            self._enqueue_beside(first, rest)
            return
        for launch in (*first, *rest):
            launch()

    def _enqueue_beside(self, first: list[Launch], rest: list[Launch]) -> None:
        if self.beside is None:
            # Only the first part may be several kernels in a row: these are not to wait for others.
            self.beside = torch.cuda.Stream(self.device, priority=-1)
        current = torch.cuda.current_stream(self.device)
        self.beside.wait_stream(current)
        with torch.cuda.stream(self.beside):
            for launch in first:
                launch()
        for launch in rest:
            launch()
        current.wait_stream(self.beside)

    def _parts(self, inputs: Inputs) -> list[list[Launch]]:
        """Launches that need not wait for each other; those of one part do."""
        shared = [self._shared(inputs)] if len(self.shared.host) else []
        return [*shared, *([self._whole(inputs, kind, programs)] for kind, programs in self.whole)]

    def _whole(self, inputs: Inputs, kind: Kind, programs: DeviceConstant) -> Launch:
        """Step what lies in one piece."""
        table, numbers, scaling = inputs
        kernel = {"short": rows.step_short, "wide": rows.step_wide, "long": long.step_long}[kind.way]
        arguments = table, programs.get(), numbers, *(scaling or (numbers, numbers))
        options = {
            **self.options,
            "ALIGNED": kind.is_even and self.is_aligned,
            "FACTORED": self.is_factored,
            "SCALED_LOSS": scaling is not None,
            "LENGTH": kind.length,
            "num_warps": kind.warps,
        }
        return Launch(kernel, (len(programs.host),), arguments, options)

    def _shared(self, inputs: Inputs) -> list[Launch]:
        """Step filters that several programs share."""
        table, numbers, scaling = inputs
        scale, found = scaling or (numbers, numbers)
        options = {**self.options, "SCALED_LOSS": scaling is not None, "num_warps": WARPS}
        grid, programs = (len(self.shared.host),), self.shared.get()
        sums, move = (table, programs, self.scratch), (table, programs, numbers, self.scratch)
        launches = [
            Launch(columns.sums, grid, (*sums, scale, found), options),
            Launch(columns.move, grid, (*move, scale, found), options),
        ]
        if self.divides:
            less = {name: value for name, value in options.items() if name != "BUFFERED"}
            launches.append(Launch(columns.divide, grid, (*sums, found), less))
        return launches

    def _kept(self, scaling: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        """The scale of the loss, where graphs expect it."""
        if scaling is None:
            return None
        if self.scaling is None:
            self.scaling = scaling[0].clone(), scaling[1].clone()
        for place, value in zip(self.scaling, scaling, strict=True):
            place.copy_(value, non_blocking=True)
        return self.scaling
