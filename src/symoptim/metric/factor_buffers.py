"""Factors of the metric by rows and columns, for all tensors in one piece of memory, as kernels take them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from symoptim.kernels.memory_layout import ALIGNED_ENTRIES
from symoptim.metric.matrix_view import Matrix, as_matrix
from symoptim.metric.term_layout import Layout


class RowColumnFactors(NamedTuple):
    """Factors of a matrix, by row and by column; to be multiplied twice if only one side has any."""

    rows: Tensor
    columns: Tensor
    twice: bool


class FusedMetric(Protocol):
    """The full metric by kernels: the factors of :meth:`.FullMetric.factors` that are by rows and columns."""

    factors: dict[str, RowColumnFactors]
    """Where they are, by name of the tensor."""

    def refresh(self, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Write the factors at these weights into :attr:`factors`; only values may have changed."""
        ...


class FactorBuffers:
    r"""Factors of all matrices, :math:`\exp p (w \lambda_o + (\lambda_a - \lambda_b) / 2)` to a power p.

    :math:`\lambda` are log-scales by position, zero one past the last. Where both sides of a matrix have a
    scale, a constant is moved from one to the other so that their first ones are equal: deep in a network one
    alone would be too large for float32.
    """

    def __init__(
        self, layout: Layout, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        """Lay the factors out.

        Args:
            layout: of the tensors.
            tensors: all that are stepped, by name; those that are elsewhere or of another type have none.
            device: of the factors.
            dtype: their type.
        """
        positions, weights = [torch.zeros(0, 3, dtype=torch.long)], [torch.zeros(0)]
        self.by_name: dict[str, RowColumnFactors] = {}
        starts: dict[str, tuple[int, int, Matrix]] = {}
        end = 0
        for name, matrix in _matrices(layout, tensors, device, dtype).items():
            positions += _positions(matrix, layout.positions)
            both = matrix.rows is not None and matrix.columns is not None
            weights.append(torch.full((len(positions[-2]) + len(positions[-1]),), 1.0 if both else 0.5))
            starts[name] = end, end + len(positions[-2]), matrix
            end += len(weights[-1])
        self.positions, self.weights = torch.cat(positions), torch.cat(weights).to(dtype)
        """Positions o, a, b and weights w of all factors, on the host."""
        self.values = torch.zeros(end, device=device, dtype=dtype)
        for name, (rows, columns, matrix) in starts.items():
            twice = matrix.rows is None or matrix.columns is None
            by_row, by_column = self.values[rows:][: matrix.height], self.values[columns:][: matrix.width]
            self.by_name[name] = RowColumnFactors(by_row, by_column, twice)


def _matrices(
    layout: Layout, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> dict[str, Matrix]:
    """Tensors that move by their rows and columns."""
    found: dict[str, Matrix] = {}
    for name, terms in layout.terms.items():
        tensor = tensors.get(name)
        if terms and tensor is not None and tensor.dtype == dtype and tensor.device == device:
            matrix = as_matrix(tensor, terms)
            if matrix is not None:
                found[name] = matrix
    return found


def _positions(matrix: Matrix, nowhere: int) -> tuple[Tensor, Tensor]:
    """Positions of the factors of rows and columns."""
    rows = torch.full((matrix.height,), nowhere) if matrix.rows is None else matrix.rows
    columns = torch.full((matrix.width,), nowhere) if matrix.columns is None else matrix.columns
    both = matrix.rows is not None and matrix.columns is not None
    row, column = (int(rows[0]), int(columns[0])) if both else (nowhere, nowhere)
    return _padded(rows, column, row, nowhere), _padded(columns, row, column, nowhere)


def _padded(own: Tensor, added: int, taken: int, nowhere: int) -> Tensor:
    """Three positions of every factor, and a few more, so that the next ones begin at an even address."""
    found = torch.full((-(-len(own) // ALIGNED_ENTRIES) * ALIGNED_ENTRIES, 3), nowhere)
    found[: len(own), 0], found[: len(own), 1], found[: len(own), 2] = own, added, taken
    return found
