"""Where the factors of rows and columns of all tensors are: in one piece of memory, as kernels take them."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

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
        places, weights = [_three(0, 0, 0)[:0]], [torch.zeros(0)]
        matrices = _matrices(layout, tensors, device, dtype)
        for matrix in matrices.values():
            places.append(_places(matrix, layout.positions))
            both = matrix.rows is not None and matrix.columns is not None
            weights.append(torch.full((matrix.height + matrix.width,), 1.0 if both else 0.5))
        self.places, self.weights = torch.cat(places), torch.cat(weights).to(dtype)
        """Positions o, a, b and weights w of all factors, on the host."""
        self.values = torch.zeros(len(self.places), device=device, dtype=dtype)
        self.by_name: dict[str, Sides] = {}
        start = 0
        for name, matrix in matrices.items():
            middle, end = start + matrix.height, start + matrix.height + matrix.width
            twice = matrix.rows is None or matrix.columns is None
            self.by_name[name] = Sides(self.values[start:middle], self.values[middle:end], twice)
            start = end


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


def _places(matrix: Matrix, nowhere: int) -> Tensor:
    """Positions of the factors of a matrix, rows first."""
    rows = torch.full((matrix.height,), nowhere) if matrix.rows is None else matrix.rows
    columns = torch.full((matrix.width,), nowhere) if matrix.columns is None else matrix.columns
    both = matrix.rows is not None and matrix.columns is not None
    row, column = (int(rows[0]), int(columns[0])) if both else (nowhere, nowhere)
    return torch.cat([_three(rows, column, row), _three(columns, row, column)])


def _three(own: Tensor | int, added: int, taken: int) -> Tensor:
    own = torch.as_tensor(own).reshape(-1)
    return torch.stack([own, torch.full_like(own, added), torch.full_like(own, taken)], dim=1)
