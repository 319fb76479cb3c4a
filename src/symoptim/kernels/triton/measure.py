# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""Launches of the kernels that find the full metric. Nothing waits for the device."""

from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels.squares import OF_COLUMNS, OF_ROWS
from symoptim.kernels.table import COLUMNS, WEIGHTS
from symoptim.kernels.triton import norms, scales
from symoptim.kernels.triton.graph import DeviceConstant
from symoptim.kernels.triton.launcher import TYPES
from symoptim.kernels.triton.members import unit_programs
from symoptim.kernels.triton.pieces import ACROSS, TILE, piece_programs

BLOCK = 1024  # entries that a program has in hand
WARPS, MORE_WARPS = 4, 16  # of a program; of one that waits more than it computes
WIDE = 4096  # entries that one with more warps has in hand


class Rows(NamedTuple):
    """A sparse matrix by rows: where each begins, columns, values."""

    starts: DeviceConstant
    columns: DeviceConstant
    values: DeviceConstant

    def get(self) -> tuple[Tensor, Tensor, Tensor]:
        """Its parts on the device."""
        return self.starts.get(), self.columns.get(), self.values.get()

    def times(self, vector: Tensor, out: Tensor, negative: Tensor | None = None) -> None:
        """Write the product with a vector, or, of negative values, with another one."""
        count = len(self.starts.host) - 1
        other = vector if negative is None else negative
        scales.spread[(-(-count // BLOCK),)](*self.get(), vector, other, out, count, BLOCK=BLOCK)


class Roots:
    """Writes logarithms of the norms of the matrices of a table, or of pieces of them."""

    def __init__(self, table: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        """Share the matrices out among programs; addresses stay what they are."""
        self.type = TYPES[dtype]
        is_aligned = bool((table[:, [WEIGHTS, COLUMNS]] % 16 == 0).all())
        self.programs: list[tuple[int, bool, DeviceConstant]] = []
        for kind in (OF_ROWS, OF_COLUMNS):
            for even in (False, True):
                found = piece_programs(table, dtype.itemsize, kind=kind, even=even)
                if len(found):
                    self.programs.append((kind, even and is_aligned, DeviceConstant(found, device)))

    def launch(self, roots: Tensor) -> None:
        """Write all of them."""
        for kind, aligned, programs in self.programs:
            grid, arguments = (len(programs.host),), (programs.get(), roots)
            options = {"TYPE": self.type, "ALIGNED": aligned, "TILE": TILE, "num_warps": WARPS}
            if kind == OF_ROWS:
                norms.of_rows[grid](*arguments, **options)
            else:
                norms.of_columns[grid](*arguments, ACROSS=ACROSS, **options)


class Inverses:
    """Writes one over the scales that are divided out of matrices, each set divided by its largest."""

    def __init__(self, lists: list[tuple[int, int, int, int]], scales: Rows, device: torch.device) -> None:
        """Share them out among programs.

        Args:
            lists: matrix, first and last row of ``scales``, and place of the first factor.
            scales: their logarithms, as combinations of sizes.
            device: a CUDA device.
        """
        found = [
            (matrix, first, last, own, place + own - first)
            for matrix, first, last, place in lists
            for own in range(first, last, BLOCK)
        ]
        programs = torch.tensor(found, dtype=torch.int64, device="cpu").reshape(-1, 5)
        self.programs, self.scales = DeviceConstant(programs, device), scales

    def launch(self, known: Tensor, largest: Tensor, factors: Tensor) -> None:
        """Write the factors, and logarithms of the largest ones by matrix."""
        if len(self.programs.host):
            scales.inverses[(len(self.programs.host),)](
                self.programs.get(), *self.scales.get(), known, largest, factors,
                TYPE=TYPES[factors.dtype], BLOCK=BLOCK, TILE=WIDE, num_warps=MORE_WARPS,
            )  # fmt: skip


class Units:
    """Writes root mean squares of the norms of units; what is given is sorted by how many there are."""

    def __init__(self, starts: Tensor, reads: Tensor, own: Rows, about: Tensor, targets: Tensor) -> None:
        """Share the units out among programs.

        Args:
            starts: of the members of every unit, and the end.
            reads: of every member the place of its root, and its matrix if something was divided out of that.
            own: what is known of the members' own scales.
            about: weight and exponent of every unit.
            targets: where its size goes.
        """
        device = own.starts.device
        self.programs = DeviceConstant(unit_programs(starts), device)
        self.starts, self.reads, self.own = DeviceConstant(starts, device), DeviceConstant(reads, device), own
        self.about, self.targets = DeviceConstant(about, device), DeviceConstant(targets, device)

    def launch(self, roots: Tensor, largest: Tensor, known: Tensor, out: Tensor, *, zero: int) -> None:
        """Write all of them, and what :mod:`.members` says where all is zero."""
        if len(self.programs.host):
            scales.units[(len(self.programs.host),)](
                self.programs.get(), self.starts.get(), roots, self.reads.get(), largest, *self.own.get(),
                known, self.about.get(), self.targets.get(), out, ZERO=zero, num_warps=MORE_WARPS,
            )  # fmt: skip


def write_sides(logs: Tensor, places: Tensor, weights: Tensor, out: Tensor, power: float) -> None:
    """Write factors of rows and columns, to a power; see :func:`.scales.sides`."""
    if len(out):
        grid = (-(-len(out) // BLOCK),)
        scales.sides[grid](logs, places, weights, out, len(out), power, TYPE=TYPES[out.dtype], BLOCK=BLOCK)
