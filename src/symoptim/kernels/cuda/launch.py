# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Steps on CUDA devices: one launch for all tensors, and up to three for filters that programs share.

Nothing waits for the device. Tables are copied to it when addresses have changed, and remembered, for
gradients often come back to where they were; a table that a CUDA graph has seen is kept for good.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from symoptim.geometry.filters import update_dtype
from symoptim.kernels.cuda import apart
from symoptim.kernels.cuda.programs import TILE, shared_programs, whole_programs
from symoptim.kernels.cuda.whole import step_whole
from symoptim.kernels.numbers import RATE
from symoptim.kernels.table import BUFFER, COLUMNS, KIND, PARAMETER, UNIT

REMEMBERED = 8
WARPS = 8
TYPES: dict[torch.dtype, Any] = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


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
        self.factored = bool((table[:, COLUMNS] != 0).any())
        self.even = whole_programs(table, even=True).to(device)
        self.odd = whole_programs(table, even=False).to(device)
        shared, scratch = shared_programs(table)
        self.shared = shared.to(device)
        self.scratch = torch.empty(scratch, dtype=torch.float64, device=device)
        self.divides = bool((table[shared[:, 0], KIND] == UNIT).any())
        self.tables: dict[bytes, tuple[Tensor, bool]] = {}
        self.kept: list[Tensor] = []
        self.numbers = torch.empty(0, dtype=torch.float64, device=device)
        self.last_numbers: list[tuple[float, ...]] = []
        self.point_at(table)

    def point_at(self, table: Tensor) -> None:
        """Use this table from now on."""
        key = table.numpy().tobytes()
        if key not in self.tables:
            if len(self.tables) == REMEMBERED:
                del self.tables[next(iter(self.tables))]
            is_aligned = bool((table[:, : PARAMETER + 1] % 16 == 0).all())
            self.tables[key] = self._copied(table), is_aligned
        self.table, self.is_aligned = self.tables[key]

    def _copied(self, host: Tensor) -> Tensor:
        pinned = host.pin_memory()
        there = torch.empty_like(pinned, device=self.device).copy_(pinned, non_blocking=True)
        if torch.cuda.is_current_stream_capturing():
            self.kept += [pinned, there]  # the graph copies it again whenever it is replayed
        return there

    def launch(
        self,
        numbers: list[tuple[float, ...]],
        rates: Sequence[Tensor | None],
        scaling: tuple[Tensor, Tensor] | None,
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.dispatch.Launcher`."""
        with torch.cuda.device(self.device):
            self._set_numbers(numbers, rates)
            scale, found = scaling or (self.numbers, self.numbers)
            options = {**self.options, "SCALED_LOSS": scaling is not None}
            for programs, aligned in ((self.even, self.is_aligned), (self.odd, False)):
                if len(programs):
                    step_whole[(len(programs),)](
                        self.table, programs, self.numbers, scale, found,
                        ALIGNED=aligned, FACTORED=self.factored, TILE=TILE, num_warps=WARPS, **options,
                    )  # fmt: skip
            if len(self.shared):
                grid = (len(self.shared),)
                apart.sums[grid](self.table, self.shared, self.scratch, scale, found, **options)
                apart.move[grid](self.table, self.shared, self.numbers, self.scratch, scale, found, **options)
                if self.divides:
                    del options["BUFFERED"]
                    apart.divide[grid](self.table, self.shared, self.scratch, found, **options)

    def _set_numbers(self, numbers: list[tuple[float, ...]], rates: Sequence[Tensor | None]) -> None:
        if numbers != self.last_numbers:
            pinned = torch.tensor(numbers, dtype=torch.float64).pin_memory()
            if len(self.numbers) != len(numbers):
                self.numbers = torch.empty_like(pinned, device=self.device)
            self.numbers.copy_(pinned, non_blocking=True)
            if torch.cuda.is_current_stream_capturing():
                self.kept.append(pinned)
            self.last_numbers = numbers
        for group, rate in enumerate(rates):
            if rate is not None:
                self.numbers[group, RATE].copy_(rate.reshape(()), non_blocking=True)
