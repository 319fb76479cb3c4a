"""Norms of a level by kernels: all matrices that are read at once, in one pass over memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels import squares, table
from symoptim.kernels.dispatch import SquaresLauncher, squares_launcher
from symoptim.metric.flat import Matrix, as_matrix
from symoptim.metric.levels import Level, Reading
from symoptim.metric.measure import log_norms
from symoptim.symmetry.tensors import whole_numbers


class Read(NamedTuple):
    """A matrix that is read: where its norms begin, and whether those of its rows are wanted."""

    start: int
    reading: Reading
    matrix: Matrix
    by_rows: bool

    @property
    def own(self) -> Tensor:
        """Position that every sum belongs to."""
        positions = self.matrix.rows if self.by_rows else self.matrix.columns
        assert positions is not None
        return positions

    @property
    def norms(self) -> Tensor:
        """Norm that every sum belongs to."""
        return self.own - self.reading.own.start + self.start

    @property
    def other(self) -> Tensor:
        """Positions of the factors that are divided out; none if there are none."""
        positions = self.matrix.columns if self.by_rows else self.matrix.rows
        return torch.zeros(0, dtype=torch.long) if positions is None else positions


class LevelReader:
    """Reads the norms of one level, as :func:`.measure.read_norms` does."""

    def __init__(self, level: Level, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype):
        """Find out which readings are sums over rows or columns of matrices.

        Args:
            level: what is to be read.
            tensors: by name.
            device: of the metric.
            dtype: its precision; tensors of another one are read otherwise.
        """
        self.reads, self.left = as_reads(level.readings, tensors, device, dtype)
        self.size = sum(reading.own.stop - reading.own.start for reading in level.readings)
        owner = torch.arange(len(self.reads))
        sums = torch.tensor([len(read.own) for read in self.reads], dtype=torch.long)
        others = torch.tensor([len(read.other) for read in self.reads], dtype=torch.long)
        nothing = torch.zeros(0, dtype=torch.long)
        self.into = torch.cat([nothing, *(read.norms for read in self.reads)]).to(device)
        self.of_sum = torch.repeat_interleave(owner, sums).to(device)
        self.positions = torch.cat([nothing, *(read.other for read in self.reads)]).to(device)
        self.of_factor = torch.repeat_interleave(owner, others).to(device)
        self.factors = torch.zeros(len(self.positions), dtype=dtype, device=device)
        self.sums = torch.zeros(len(self.into), dtype=torch.float64, device=device)
        starts, places = whole_numbers(sums.cumsum(0) - sums), whole_numbers(others.cumsum(0) - others)
        self.table = table_of(self.reads, tensors, starts, self.factors, places)
        self.launcher: SquaresLauncher | None = None
        if self.reads:
            self.launcher = squares_launcher(device, dtype, self.table)

    def __call__(self, weights: Mapping[str, Tensor], log_scales: Tensor) -> Tensor:
        """Logarithms of the norms, in the order of the readings.

        Args:
            weights: by name.
            log_scales: at all positions of the layout.

        Returns:
            As :func:`.measure.read_norms`.
        """
        inverse = -log_scales.index_select(0, self.positions)
        largest = log_scales.new_zeros(len(self.reads))
        if len(inverse):
            largest = largest.scatter_reduce(0, self.of_factor, inverse, "amax", include_self=False)
            torch.exp(inverse - largest.index_select(0, self.of_factor), out=self.factors)
        if self.launcher is not None:
            addresses = [weights[read.reading.tensor].data_ptr() for read in self.reads]
            self.table[:, table.WEIGHTS] = torch.tensor(addresses, device="cpu")
            self.launcher.launch(self.table, self.sums)
        # Norms are of sums of several columns where these move together, pixels of a convolution.
        squared = self.sums.new_zeros(self.size).scatter_add_(0, self.into, self.sums)
        logs = squared.log_().div_(2).to(log_scales.dtype)
        if len(inverse):
            logs += torch.zeros_like(logs).scatter_(0, self.into, largest.index_select(0, self.of_sum))
        for start, reading in self.left:
            found = log_norms(reading, weights[reading.tensor], log_scales)
            logs[start : start + len(found)] = found
        return logs


Left = list[tuple[int, Reading]]
"""Readings that are left to the reference, and where their norms begin."""


def as_reads(
    readings: Iterable[Reading], tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> tuple[list[Read], Left]:
    """Sort readings into sums over rows or columns of matrices, and others.

    Args:
        readings: of a level.
        tensors: by name.
        device: of the metric.
        dtype: its precision; tensors of another one are left.

    Returns:
        Sums, and readings that are left.
    """
    reads: list[Read] = []
    left: Left = []
    start = 0
    for reading in readings:
        read = _as_read(reading, tensors[reading.tensor], start, device, dtype)
        if read is None:
            left.append((start, reading))
        else:
            reads.append(read)
        start += reading.own.stop - reading.own.start
    return reads, left


def _as_read(
    reading: Reading, tensor: Tensor, start: int, device: torch.device, dtype: torch.dtype
) -> Read | None:
    """A reading as sums over a matrix, or None if it is not that or not there."""
    if tensor.device != device or tensor.dtype != dtype or len(reading.others) > 1:
        return None
    matrix = as_matrix(tensor, (reading.own, *reading.others))
    if matrix is None:
        return None
    by_rows = matrix.rows is not None and int(matrix.rows[0]) == reading.own.start
    return Read(start, reading, matrix, by_rows)


def table_of(
    reads: Sequence[Read],
    tensors: Mapping[str, Tensor],
    starts: Sequence[int],
    factors: Tensor,
    places: Sequence[int],
) -> Tensor:
    """The table for kernels.

    Args:
        reads: the matrices.
        tensors: by name.
        starts: places of their first sums.
        factors: of all that is divided out.
        places: where among these their own begin.

    Returns:
        A row per matrix.
    """
    found = torch.zeros(len(reads), squares.WIDTH, dtype=torch.long, device="cpu")
    for index, read in enumerate(reads):
        row = found[index]
        row[table.WEIGHTS] = tensors[read.reading.tensor].data_ptr()
        row[table.OUTER], row[table.COUNT], row[table.INNER] = 1, read.matrix.height, read.matrix.width
        row[table.KIND] = squares.OF_ROWS if read.by_rows else squares.OF_COLUMNS
        row[squares.OUT] = starts[index]
        if len(read.other):
            side = table.COLUMNS if read.by_rows else table.ROWS
            row[side] = factors.data_ptr() + places[index] * factors.element_size()
    return found
