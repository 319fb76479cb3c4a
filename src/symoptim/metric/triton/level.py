"""One level of the full metric on a CUDA device: norms of some matrices, and what is made of them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels.squares import OUT
from symoptim.kernels.table import rows_of
from symoptim.kernels.triton.measure import Inverses, Roots, Rows, Units
from symoptim.kernels.triton.members import AS_ZERO, Numbers, parted
from symoptim.kernels.triton.mirror import Mirror
from symoptim.kernels.triton.pieces import pieces_of
from symoptim.metric.factor_buffers import EVEN
from symoptim.metric.levels import Reading
from symoptim.metric.matrix_view import matrix_readings, table_of
from symoptim.metric.reference import log_norms
from symoptim.symmetry.sparse import Sparse, entries_of


class Sought(NamedTuple):
    """Root mean squares of norms that are sought."""

    readings: tuple[Reading, ...]
    """Where norms are taken."""
    unit: Tensor
    """Of every position of the layout the unit that its norm belongs to, or -1."""
    about: Tensor
    """Of every unit what its sum is multiplied by, and the exponent of its norms, ``(m, 2)``."""
    targets: Tensor
    """Where its size goes."""
    is_of_units: bool
    """Whether norms are divided by what is known of their own scales."""


class CudaLevel:
    """Finds what is sought."""

    def __init__(
        self,
        sought: Sought,
        known: Sparse,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Plan the launches.

        Args:
            sought: root mean squares of norms.
            known: exponents of all positions in generators whose sizes are known.
            tensors: by name.
            device: of the metric.
            dtype: of tensors that kernels read.
        """
        reads, left = matrix_readings(sought.readings, tensors, device, dtype)
        self.left = [reading for _, reading in left]
        self.largest = torch.zeros(len(reads), dtype=torch.float64, device=device)
        others = [read.other for read in reads]
        places = _aligned_starts([len(other) for other in others])
        self.factors = torch.zeros(places[-1], dtype=dtype, device=device)
        self.inverses = _inverses(others, places, known, device)
        table = table_of(reads, tensors, [0] * len(reads), self.factors, places)
        # Of every number that is written: the position it is of, and the matrix, if factors were divided out.
        positions, matrices = [torch.zeros(0, dtype=torch.long)], [torch.zeros(0, dtype=torch.long)]
        start = 0
        for number, (read, row) in enumerate(zip(reads, rows_of(table), strict=True)):
            table[number, OUT] = start
            pieces = pieces_of(row)
            positions.append(read.own.repeat_interleave(pieces) if read.by_rows else read.own.repeat(pieces))
            matrices.append(torch.full_like(positions[-1], number if len(read.other) else -1))
            start += len(positions[-1])
        self.start = start
        """Where norms begin that are left to the reference."""
        for reading in self.left:
            positions.append(torch.arange(reading.own.start, reading.own.stop))
            matrices.append(torch.full_like(positions[-1], -1))
        self.norms = Roots(table, device, dtype)
        numbers = _numbers(sought, torch.cat(positions), torch.cat(matrices))
        numbers, parts = parted(numbers, sum(map(len, positions)), len(sought.unit))
        self.parts = None if parts is None else _units(parts, known, device)
        self.units = _units(numbers, known, device)
        written = sum(map(len, positions)) + (0 if parts is None else len(parts.targets))
        self.roots = torch.zeros(written, dtype=torch.float64, device=device)
        self.scales: Rows | None = None
        if self.left:
            self.scales = chosen_rows(known, torch.arange(len(sought.unit)), device)
            self.log_scales = torch.zeros(len(sought.unit), dtype=torch.float64, device=device)

    def write(
        self, sizes: Tensor, weights: Callable[[], Mapping[str, Tensor]], out: Tensor, *, zero: int
    ) -> None:
        """Write what is sought.

        Args:
            sizes: log-sizes of all generators, as far as they are known.
            weights: all tensors by name; called if some are left to the reference.
            out: where it goes.
            zero: what is written where norms are zero, of :mod:`symoptim.kernels.triton.members`.
        """
        self.inverses.launch(sizes, self.largest, self.factors)
        self.norms.launch(self.roots)
        if self.scales is not None:
            self.scales.times(sizes, self.log_scales)
            there, start = weights(), self.start
            for reading in self.left:
                found = log_norms(reading, there[reading.tensor].double(), self.log_scales)
                self.roots[start : start + len(found)] = found
                start += len(found)
        if self.parts is not None:
            self.parts.launch(self.roots, self.largest, sizes, self.roots, zero=AS_ZERO)
        self.units.launch(self.roots, self.largest, sizes, out, zero=zero)


def _aligned_starts(sizes: list[int]) -> list[int]:
    """Where parts of these sizes begin, each at a multiple of a few entries; and the end."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // EVEN) * EVEN)
    return starts


def _inverses(others: list[Tensor], places: list[int], known: Sparse, device: torch.device) -> Inverses:
    """What is divided out of matrices."""
    lists: list[tuple[int, int, int, int]] = []
    start = 0
    for number, other in enumerate(others):
        if len(other):
            lists.append((number, start, start + len(other), places[number]))
            start += len(other)
    positions = torch.cat([torch.zeros(0, dtype=torch.long), *others])
    return Inverses(lists, chosen_rows(known, positions, device), device)


def _numbers(sought: Sought, positions: Tensor, matrices: Tensor) -> Numbers:
    """Which of the numbers that are written make up which unit."""
    unit = sought.unit[positions]
    if not sought.is_of_units:
        positions = torch.full_like(positions, len(sought.unit))  # where nothing is known
    about = torch.stack([torch.arange(len(unit)), matrices, positions], dim=1)
    return Numbers(unit[unit >= 0], about[unit >= 0], sought.about, sought.targets)


def _units(numbers: Numbers, known: Sparse, device: torch.device) -> Units:
    """For kernels, units with the fewest numbers first."""
    counts = torch.bincount(numbers.unit, minlength=len(numbers.targets))
    order = counts.argsort(stable=True)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    found = numbers.found[rank[numbers.unit].argsort(stable=True)]
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts[order].cumsum(0)])
    own = chosen_rows(known, found[:, 2], device)
    return Units(starts, found[:, :2].contiguous(), own, numbers.about[order], numbers.targets[order])


def chosen_rows(matrix: Sparse, rows: Tensor, device: torch.device) -> Rows:
    """These rows of a sparse matrix, in this order, for kernels."""
    counts, there = entries_of(matrix, rows, int(rows.max()) + 1 if len(rows) else 0)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    return Rows(*(Mirror(one, device) for one in (starts, matrix.columns[there], matrix.values[there])))
