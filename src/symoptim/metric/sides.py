"""Where the factors of rows and columns of all tensors are: in one piece of memory, as kernels take them."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels.lay import EVEN
from symoptim.metric.flat import Matrix, as_matrix
from symoptim.metric.layout import Layout


class Sides(NamedTuple):
    """Factors of a matrix, by row and by column; to be multiplied twice if only one side has any."""

    rows: Tensor
    columns: Tensor
    twice: bool


class AllSides:
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
        places, weights = [torch.zeros(0, 3, dtype=torch.long)], [torch.zeros(0)]
        self.by_name: dict[str, Sides] = {}
        starts: dict[str, tuple[int, int, Matrix]] = {}
        end = 0
        for name, matrix in _matrices(layout, tensors, device, dtype).items():
            places += _places(matrix, layout.positions)
            both = matrix.rows is not None and matrix.columns is not None
            weights.append(torch.full((len(places[-2]) + len(places[-1]),), 1.0 if both else 0.5))
            starts[name] = end, end + len(places[-2]), matrix
            end += len(weights[-1])
        self.places, self.weights = torch.cat(places), torch.cat(weights).to(dtype)
        """Positions o, a, b and weights w of all factors, on the host."""
        self.values = torch.zeros(end, device=device, dtype=dtype)
        for name, (rows, columns, matrix) in starts.items():
            twice = matrix.rows is None or matrix.columns is None
            by_row, by_column = self.values[rows:][: matrix.height], self.values[columns:][: matrix.width]
            self.by_name[name] = Sides(by_row, by_column, twice)


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


def _places(matrix: Matrix, nowhere: int) -> tuple[Tensor, Tensor]:
    """Positions of the factors of rows and columns."""
    rows = torch.full((matrix.height,), nowhere) if matrix.rows is None else matrix.rows
    columns = torch.full((matrix.width,), nowhere) if matrix.columns is None else matrix.columns
    both = matrix.rows is not None and matrix.columns is not None
    row, column = (int(rows[0]), int(columns[0])) if both else (nowhere, nowhere)
    return _padded(rows, column, row, nowhere), _padded(columns, row, column, nowhere)


def _padded(own: Tensor, added: int, taken: int, nowhere: int) -> Tensor:
    """Three positions of every factor, and a few more, so that the next ones begin at an even address."""
    found = torch.full((-(-len(own) // EVEN) * EVEN, 3), nowhere)
    found[: len(own), 0], found[: len(own), 1], found[: len(own), 2] = own, added, taken
    return found
