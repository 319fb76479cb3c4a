"""Which norms of a level are sums over rows or columns of matrices, as kernels take them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels import squares, table
from symoptim.metric.flat import Matrix, as_matrix
from symoptim.metric.levels import Reading


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
