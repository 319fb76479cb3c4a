"""The table for squared norms of matrices: that of a step, and where the sums go."""

from symoptim.kernels import table

OF_ROWS, OF_COLUMNS = range(2)
"""Kinds of sums."""

OUT = table.WIDTH
"""Column with the place of a matrix's first sum."""

WIDTH = table.WIDTH + 1
