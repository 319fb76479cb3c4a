"""Checkers for anyone who writes a geometry, an update or a symmetry of their own.

Geometry is checked by slopes rather than tolerances: a retraction that agrees with the exponential map
to second order leaves a gap that shrinks with the *third* power of the step, whatever its size.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from symoptim.geometry.filters import ROWS, Axes, inner, norm
from symoptim.geometry.unit_norm import exponential_map, project_to_tangent, retract

Point = Sequence[Tensor]


def equivariance_residual(
    step: Callable[[Point], Point], act: Callable[[Point], Point], point: Point
) -> float:
    r"""How far an update is from commuting with a rescaling, relative to the result.

    .. math:: \max_k |step(act(x))_k - act(step(x))_k| \,/\, |act(step(x))_k|

    Rounding (1e-15 in float64) for an invariant update, of order one for plain SGD.

    >>> def doubled(x):
    ...     return [2 * x[0]]
    >>> def plain(x):  # the gradient of log|w| is 1/w
    ...     return [x[0] - 0.5 / x[0]]
    >>> def scaled(x):  # times |w|^2
    ...     return [x[0] - 0.5 * x[0]]
    >>> point = [torch.tensor([2.0])]
    >>> equivariance_residual(scaled, doubled, point)
    0.0
    >>> round(equivariance_residual(plain, doubled, point), 4)
    0.1071
    """
    moved_then_stepped = step(act(point))
    stepped_then_moved = act(step(point))
    gaps = [
        _size(a - b) / _size(b).clamp_min(torch.finfo(b.dtype).tiny)
        for a, b in zip(moved_then_stepped, stepped_then_moved, strict=True)
    ]
    return float(torch.stack(gaps).max())  # NaN if any is, unlike Python's max


def slope(gap: Callable[[float], float], steps: Sequence[float] = (0.1, 0.05, 0.02, 0.01)) -> float:
    """Power with which ``gap(h)`` shrinks with h: the least-squares slope of log gap against log h.

    >>> round(slope(lambda h: 7 * h**3), 6)
    3.0
    """
    x = [math.log(h) for h in steps]
    y = [math.log(gap(h)) for h in steps]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)


def retraction_slope(w: Tensor, v: Tensor, over: Axes = ROWS) -> float:
    """Order of agreement of retraction and exponential map at ``w`` along ``v``: 3 where both are right.

    ``w`` are unit filters; ``v`` is projected to their tangent space and scaled to length one at most, so
    that step sizes are angles. Use float64.

    >>> w = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    >>> round(retraction_slope(w, torch.tensor([[1.0, 0.0]], dtype=torch.float64)), 1)
    3.0
    """
    tangent = project_to_tangent(w, v, over)
    tangent = tangent / norm(tangent, over).max()

    def gap(h: float) -> float:
        return float(_size(retract(w, h * tangent, over) - exponential_map(w, h * tangent, over)))

    return slope(gap)


def tangency(w: Tensor, v: Tensor, over: Axes = ROWS) -> float:
    r"""Largest cosine :math:`|\langle w, v \rangle| / (|w| |v|)` of any filter: zero for tangent ``v``.

    >>> tangency(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
    0.0
    """
    lengths = norm(w, over) * norm(v, over)
    cosine = inner(w, v, over).abs() / lengths.clamp_min(torch.finfo(w.dtype).tiny)
    return float(cosine.max())


def _size(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()
