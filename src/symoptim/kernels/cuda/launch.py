# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Steps on CUDA devices: one launch for all tensors, and up to four for those that lie awkwardly.

Nothing waits for the device. Tables are copied to it when addresses have changed, and remembered, for
gradients often come back to where they were.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from symoptim.geometry.filters import update_dtype
from symoptim.kernels.cuda import apart
from symoptim.kernels.cuda.mirror import Mirror, copied
from symoptim.kernels.cuda.programs import TILE, shared_programs, whole_programs
from symoptim.kernels.cuda.whole import step_whole
from symoptim.kernels.dispatch import Numbers
from symoptim.kernels.numbers import RATE
from symoptim.kernels.table import BUFFER, COLUMNS, KIND, PARAMETER, UNIT

REMEMBERED = 8  # tables
WARPS = 8  # of a program
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
        self.even = Mirror(whole_programs(table, even=True), device)
        self.odd = Mirror(whole_programs(table, even=False), device)
        shared, scratch = shared_programs(table)
        self.shared = Mirror(shared, device)
        self.scratch = torch.empty(scratch, dtype=torch.float64, device=device)
        self.divides = bool((table[shared[:, 0], KIND] == UNIT).any())
        self.tables: dict[bytes, tuple[Mirror, bool]] = {}
        self.numbers: tuple[Numbers, Tensor] | None = None
        self.point_at(table)

    def point_at(self, table: Tensor) -> None:
        """Use a table that differs from the first one in addresses only."""
        key = table.numpy().tobytes()
        if key not in self.tables:
            if len(self.tables) == REMEMBERED:
                del self.tables[next(iter(self.tables))]
            is_aligned = bool((table[:, : PARAMETER + 1] % 16 == 0).all())
            self.tables[key] = Mirror(table.clone(), self.device), is_aligned
        self.table, self.is_aligned = self.tables[key]

    def launch(
        self, numbers: Numbers, rates: Sequence[Tensor | None], scaling: tuple[Tensor, Tensor] | None
    ) -> None:
        """Step all tensors; see :class:`symoptim.kernels.dispatch.Launcher`."""
        with torch.cuda.device(self.device):
            values = self._values(numbers, rates)
            table = self.table.get()
            scale, found = scaling or (values, values)
            options = {**self.options, "SCALED_LOSS": scaling is not None}
            for programs, aligned in ((self.odd, False), (self.even, self.is_aligned)):
                if len(programs):
                    step_whole[(len(programs),)](
                        table, programs.get(), values, scale, found,
                        ALIGNED=aligned, FACTORED=self.factored, TILE=TILE, num_warps=WARPS, **options,
                    )  # fmt: skip
            if len(self.shared):
                grid, shared = (len(self.shared),), self.shared.get()
                apart.sums[grid](table, shared, self.scratch, scale, found, **options)
                apart.move[grid](table, shared, values, self.scratch, scale, found, **options)
                if self.divides:
                    del options["BUFFERED"]
                    apart.divide[grid](table, shared, self.scratch, found, **options)

    def _values(self, numbers: Numbers, rates: Sequence[Tensor | None]) -> Tensor:
        """The numbers on the device; a graph that is being captured gets its own."""
        if torch.cuda.is_current_stream_capturing():
            values = copied(torch.tensor(numbers, dtype=torch.float64), self.device)
        else:
            if self.numbers is None or self.numbers[0] != numbers:
                self.numbers = numbers, copied(torch.tensor(numbers, dtype=torch.float64), self.device)
            values = self.numbers[1]
        for group, rate in enumerate(rates):
            if rate is not None:
                values[group, RATE].copy_(rate.reshape(()), non_blocking=True)
        return values
