"""A metric by rows and columns: what kernels need of it, for all tensors at once.

Nearly every tensor of a network moves by one number for each entry of its first axis and one for each place
behind it. A tensor that lies in memory row by row is then a matrix, and its scales are those of its rows
times those of its columns.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.geometry.distributed import is_distributed
from symoptim.kernels.lay import is_dense, lay_of
from symoptim.metric.layout import Term


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
    lay = lay_of(tensor, 0) if tensor.ndim > 1 else lay_of(tensor, None)
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
