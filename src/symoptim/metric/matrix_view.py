"""Tensors as matrices in memory: those whose scales, or norms, are of rows and columns.

Nearly every tensor of a network moves by one number for each entry of its first axis and one for each place
behind it. A tensor that lies in memory row by row is then a matrix, and its scales are those of its rows
times those of its columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.geometry.tensors import is_distributed
from symoptim.kernels import descriptor
from symoptim.kernels.memory_layout import filter_layout, is_dense
from symoptim.metric.levels import Reading
from symoptim.metric.term_layout import Term


class Matrix(NamedTuple):
    """A tensor as a matrix in memory, with the positions of the layout that its terms give its sides."""

    height: int
    width: int
    rows: Tensor | None
    """Position of every row, ``(height,)``; none if no term varies along rows."""
    columns: Tensor | None
    """Position of every column, ``(width,)``."""


def as_matrix(tensor: Tensor, terms: tuple[Term, ...]) -> Matrix | None:
    """A tensor as a matrix, or None if its terms are not those of rows and columns.

    >>> weight = torch.zeros(4, 3, 2, 2)
    >>> matrix = as_matrix(weight, (Term(0, (4, 1, 1, 1)), Term(4, (1, 3, 1, 1))))
    >>> matrix.rows.tolist(), matrix.columns.tolist()
    ([0, 1, 2, 3], [4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6])
    """
    if is_distributed(tensor) or not is_dense(tensor) or not tensor.numel():
        return None
    lay = filter_layout(tensor, 0) if tensor.ndim > 1 else filter_layout(tensor, None)
    if lay.outer > 1:
        return None
    sides: dict[str, Tensor] = {}
    for term in terms:
        side = _side(term, lay.filters)
        if side is None or side in sides:
            return None
        sides[side] = _positions(tensor, term, side, lay.filters)
    return Matrix(lay.filters, lay.inner, sides.get("rows"), sides.get("columns"))


def _side(term: Term, height: int) -> str | None:
    varies = [axis for axis, size in enumerate(term.shape) if size > 1]
    if varies == [0] and height > 1:
        return "rows"
    return "columns" if height == 1 or 0 not in varies else None


def _positions(tensor: Tensor, term: Term, side: str, height: int) -> Tensor:
    """Positions of a term along a side of its tensor, in the order of memory."""
    of_entries = torch.arange(term.start, term.stop).reshape(term.shape).expand(tensor.shape)
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    in_memory = of_entries.permute(order).reshape(height, -1)
    return (in_memory[:, 0] if side == "rows" else in_memory[0]).contiguous()


class MatrixReading(NamedTuple):
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


OtherReadings = list[tuple[int, Reading]]
"""Readings that the reference takes, and where their norms begin."""


def matrix_readings(
    readings: Iterable[Reading], tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> tuple[list[MatrixReading], OtherReadings]:
    """Sort readings into sums over rows or columns of matrices, and others.

    Args:
        readings: of a level.
        tensors: by name.
        device: of the metric.
        dtype: its precision; tensors of another one are among the others.

    Returns:
        Sums, and the others.
    """
    reads: list[MatrixReading] = []
    others: OtherReadings = []
    start = 0
    for reading in readings:
        read = _matrix_reading(reading, tensors[reading.tensor], start, device, dtype)
        if read is None:
            others.append((start, reading))
        else:
            reads.append(read)
        start += reading.own.stop - reading.own.start
    return reads, others


def _matrix_reading(
    reading: Reading, tensor: Tensor, start: int, device: torch.device, dtype: torch.dtype
) -> MatrixReading | None:
    """A reading as sums over a matrix, or None if it is not that or not there."""
    if tensor.device != device or tensor.dtype != dtype or len(reading.others) > 1:
        return None
    matrix = as_matrix(tensor, (reading.own, *reading.others))
    if matrix is None:
        return None
    by_rows = matrix.rows is not None and int(matrix.rows[0]) == reading.own.start
    return MatrixReading(start, reading, matrix, by_rows)


def table_of(
    reads: Sequence[MatrixReading],
    tensors: Mapping[str, Tensor],
    starts: Sequence[int],
    factors: Tensor,
    offsets: Sequence[int],
) -> Tensor:
    """The table for kernels.

    Args:
        reads: the matrices.
        tensors: by name.
        starts: where their first sums go.
        factors: of all that is divided out.
        offsets: where among these their own begin.

    Returns:
        A row per matrix.
    """
    found = torch.zeros(len(reads), descriptor.NORM_WIDTH, dtype=torch.long, device="cpu")
    for index, read in enumerate(reads):
        row = found[index]
        row[descriptor.WEIGHTS] = tensors[read.reading.tensor].data_ptr()
        row[descriptor.OUTER], row[descriptor.COUNT], row[descriptor.INNER] = (
            1,
            read.matrix.height,
            read.matrix.width,
        )
        row[descriptor.KIND] = descriptor.OF_ROWS if read.by_rows else descriptor.OF_COLUMNS
        row[descriptor.OUT] = starts[index]
        if len(read.other):
            side = descriptor.COLUMNS if read.by_rows else descriptor.ROWS
            row[side] = factors.data_ptr() + offsets[index] * factors.element_size()
    return found
