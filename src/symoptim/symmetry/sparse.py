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


def product(left: Sparse, right: Sparse, inner: int) -> Sparse:
    """The product of two sparse matrices, places not yet added up."""
    order = right.rows.argsort(stable=True)
    sizes = torch.bincount(right.rows, minlength=inner)
    starts = sizes.cumsum(0) - sizes
    counts = sizes[left.columns]
    entry = torch.repeat_interleave(torch.arange(len(left.rows)), counts)
    within = torch.arange(len(entry)) - (counts.cumsum(0) - counts)[entry]
    there = order[starts[left.columns[entry]] + within]
    return Sparse(left.rows[entry], right.columns[there], left.values[entry] * right.values[there])
