r"""Filters on the unit sphere: tangent vectors, and two ways to walk along one.

A filter w with :math:`|w| = 1` can only turn. Its tangent space is everything orthogonal to it; a step
along a tangent vector is taken straight and pulled back (:func:`retract`), or along the great circle
(:func:`exponential_map`); the two agree to second order.

All arguments are ``(*batch, o, i)`` for rows; other filters differ only in ``over``; see :mod:`.filters`.
"""

import torch
from torch import Tensor

from symoptim.geometry.filters import ROWS, Axes, has_unit_norm, inner, norm
from symoptim.geometry.tensors import gathered, update_dtype

NOTED = 2.0**-9
"""Relative change of a norm that is worth a warning: rounding to bfloat16 makes no larger ones."""


def project_to_tangent(w: Tensor, v: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Part of ``v`` orthogonal to the unit filters ``w``: :math:`V - \operatorname{diag}(V W^\top) W`.

    Applied to a gradient it is the gradient on the sphere (arXiv:1511.01754, Table 1, UN). Applied to a
    tangent vector of *another* point it carries that vector here: the transport a momentum buffer needs.
    A filter of one entry cannot turn: there it is zero, exactly.

    >>> project_to_tangent(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 3.0]]))
    tensor([[0., 3.]])
    """
    if all(w.shape[axis] == 1 for axis in over):
        return v - v  # by the formula what is left of rounding, times a large v, would turn the filter around
    return v - inner(w, v, over) * w


transport = project_to_tangent
"""``transport(w, v)`` carries a tangent vector ``v`` of another point to ``w``, by projection."""


def normalize(w: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Divide every filter by its norm: :math:`w / |w|`. A zero filter gives NaN.

    >>> normalize(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    return w / norm(w, over)


def normalize_once(w: Tensor, over: Axes = ROWS) -> Tensor:
    """Like :func:`normalize`, but filters already of unit norm stay bit-identical.

    >>> w = torch.tensor([[0.6, 0.8]])
    >>> torch.equal(normalize_once(w), w), normalize_once(5 * w)
    (True, tensor([[0.6000, 0.8000]]))

    What it returns is in the precision of updates; unit norm is meant to the precision of ``w`` itself, for
    filters in bfloat16 that were normalized, and rounded, are not to be normalized again.

    Derivatives are those of :func:`normalize`, of filters of unit norm too.
    """
    kept = w.to(update_dtype(w.dtype))
    normalized = normalize(kept, over)
    if torch.is_grad_enabled() and w.requires_grad:
        kept = kept.detach() + (normalized - normalized.detach())  # the same value, its derivative
    return torch.where(has_unit_norm(w, over), kept, normalized)


def change_of_norms(weight: Tensor, over: Axes) -> float:
    """The largest factor by which normalization would change a norm, up or down; 1 where it changes none.

    >>> change_of_norms(torch.tensor([[3.0, 4.0], [0.5, 0.0], [1.0, 0.0]]), (-1,))
    5.0
    """
    lengths = norm(weight.to(update_dtype(weight.dtype)), over)
    factor = torch.where(has_unit_norm(weight, over), 1.0, torch.maximum(lengths, 1 / lengths))
    return float(gathered(factor).max()) if factor.numel() else 1.0


def retract(w: Tensor, v: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Step straight along the tangent vector ``v``, then back to the sphere: :math:`(w + v)/|w + v|`.

    :math:`|w + v| \ge 1` for a tangent ``v``, so the division is always safe (arXiv:1511.01754, eq. 9).

    >>> retract(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0.7071, 0.7071]])
    """
    return normalize(w + v, over)


def exponential_map(w: Tensor, v: Tensor, over: Axes = ROWS) -> Tensor:
    r"""Walk the great circle from ``w`` along ``v`` for the length of ``v``.

    .. math:: \cos(|v|)\, w + \frac{\sin |v|}{|v|}\, v

    >>> quarter = torch.tensor([[0.0, torch.pi / 2]])
    >>> exponential_map(torch.tensor([[1.0, 0.0]]), quarter).round(decimals=6).abs()
    tensor([[0., 1.]])
    """
    length = norm(v, over)
    return torch.cos(length) * w + torch.sinc(length / torch.pi) * v
