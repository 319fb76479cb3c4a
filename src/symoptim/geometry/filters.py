"""What a filter is: one slice of a weight tensor, counted by one axis and extending over all others.

A row of a matrix, a column of a matrix, an output filter of a convolution: each is a slice, and every
formula of this package needs only the axes the slice extends *over*. They are written as negative
numbers, so any leading batch axes (a run axis, say) come for free:

    weight                       shape            filters counted by   over
    matrix, rows                 (o, i)           axis 0               (-1,)
    matrix, columns              (o, i)           axis 1               (-2,)
    convolution                  (o, i, h, w)     axis 0               (-3, -2, -1)
    transposed convolution       (i, o, h, w)     axis 1               (-4, -2, -1)

Numbers per filter keep the summed axes with size one, so they broadcast against the weight.

This file also says what counts as zero and as unit norm; :mod:`.tensors` says in which precision a parameter
is updated.
"""

import torch
from torch import Tensor

from symoptim.geometry.tensors import complete, update_dtype

Axes = tuple[int, ...]

ROWS: Axes = (-1,)
"""Filters of a matrix that are its rows."""

COLUMNS: Axes = (-2,)
"""Filters of a matrix that are its columns."""


def filter_axes(dimensions: int, axis: int) -> Axes:
    """Axes a filter extends over, for a weight of that many dimensions whose filters ``axis`` counts.

    >>> filter_axes(2, 0), filter_axes(2, 1), filter_axes(4, 1)
    ((-1,), (-2,), (-4, -2, -1))
    """
    return tuple(d - dimensions for d in range(dimensions) if d != axis)


def inner(u: Tensor, v: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Inner product :math:`\langle u_f, v_f \rangle` of every filter: ``(*batch, o, 1)`` for rows.

    >>> inner(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[11.]])
    """
    return complete((u * v).sum(dim=over, keepdim=True))


def squared_norm(w: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Squared norm :math:`|w_f|^2` of every filter; for rows the paper's :math:`diag(W W^\top)`.

    >>> squared_norm(torch.tensor([[3.0, 4.0]]))
    tensor([[25.]])
    """
    return inner(w, w, over)


def norm(w: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Norm :math:`|w_f|` of every filter.

    >>> norm(torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    return squared_norm(w, over).sqrt()


def lacks_direction(w: Tensor, over: Axes = ROWS) -> Tensor:
    """Filters whose squared norm is zero or not finite in the precision they are updated in.

    Zero filters, that is, but also those with NaN, and those too small or too large to be squared.

    >>> w = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, torch.nan], [0.0, 1e25]])
    >>> lacks_direction(w).flatten().tolist()
    [True, False, True, True]
    """
    squared = squared_norm(w.to(update_dtype(w.dtype)), over)
    return (squared == 0) | ~squared.isfinite()


def has_unit_norm(w: Tensor, over: Axes = ROWS) -> Tensor:
    """Filters of unit norm to within four rounding steps of their own precision.

    Such filters are left bit-identical when they are handed to an optimizer, so that training resumed
    from a checkpoint goes on exactly where it stopped.

    >>> has_unit_norm(torch.tensor([[0.6, 0.8], [3.0, 4.0]])).flatten().tolist()
    [True, False]
    """
    excess = norm(w.to(update_dtype(w.dtype)), over) - 1
    return excess.abs() <= 4 * torch.finfo(w.dtype).eps
