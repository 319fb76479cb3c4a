"""Sparse matrices by entries, with the few operations that solving needs."""

from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.tensors import unique_values

TINY = 1e-9  # coefficients are small fractions: what is smaller is zero


class Sparse(NamedTuple):
    """A sparse matrix by entries: row, column, value."""

    rows: Tensor
    columns: Tensor
    values: Tensor

    def summed(self, columns: int) -> "Sparse":
        """Entries of one place added up, those that cancel left out, sorted by row and column."""
        keys, where = unique_values(self.rows * columns + self.columns)
        values = torch.zeros(len(keys), dtype=torch.float64).index_add_(0, where, self.values)
        kept = values.abs() > TINY
        keys = keys[kept]
        return Sparse(keys // columns, keys % columns, values[kept])

    def chosen(self, mask: Tensor) -> "Sparse":
        """Only these entries."""
        return Sparse(self.rows[mask], self.columns[mask], self.values[mask])


def entries_of(matrix: Sparse, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Of each of these rows how many entries it has, and which those are, row by row.

    Args:
        matrix: with fewer rows than ``size``.
        rows: in any order, more than once if need be.
        size: number of rows.

    Returns:
        Counts, and places among the entries of the matrix.

    >>> matrix = Sparse(torch.tensor([2, 0, 2]), torch.tensor([5, 6, 7]), torch.ones(3))
    >>> entries_of(matrix, torch.tensor([2, 1, 0, 2]), 3)
    (tensor([2, 0, 1, 2]), tensor([0, 2, 1, 0, 2]))
    """
    order = matrix.rows.argsort(stable=True)
    sizes = torch.bincount(matrix.rows, minlength=size)
    counts = sizes[rows]
    row = torch.repeat_interleave(torch.arange(len(rows)), counts)
    within = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
    return counts, order[(sizes.cumsum(0) - sizes)[rows[row]] + within]


def product(left: Sparse, right: Sparse, inner: int) -> Sparse:
    """The product of two sparse matrices, places not yet added up."""
    counts, there = entries_of(right, left.columns, inner)
    entry = torch.repeat_interleave(torch.arange(len(left.rows)), counts)
    return Sparse(left.rows[entry], right.columns[there], left.values[entry] * right.values[there])
