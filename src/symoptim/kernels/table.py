"""The table that kernels read: addresses of every tensor, how its filters lie, and what to do with them."""

from typing import Any, cast

from torch import Tensor

WEIGHTS, GRADIENT, BUFFER, ROWS, COLUMNS, PARAMETER = range(6)
"""Columns with addresses, zero for what there is not: momentum buffer, factors of the metric by filter and by
place in a filter; and the parameter itself, where the weights are its master copy."""

OUTER, COUNT, INNER = range(6, 9)
"""Columns with the lay of the filters (:mod:`.lay`)."""

KIND, GROUP, TWICE = range(9, 12)
"""Columns with the update, the row of the table of numbers, and whether factors are multiplied twice."""

WIDTH = 12

PLAIN, SCALED, UNIT = range(3)
"""Updates of :mod:`symoptim.updates.catalog`."""


def rows_of(table: Tensor) -> list[list[int]]:
    """The rows of a table as numbers."""
    return cast("list[list[int]]", cast("Any", table).tolist())
