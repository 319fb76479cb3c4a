r"""An update is a *direction* in the tangent space and a *move* along it.

    plain      = (gradient,           add)        B-SGD, the paper's baseline
    scaled     = (scaled gradient,    add)        SM, the scaled metric
    unit norm  = (projected gradient, normalize)  UN, filters on the unit sphere

Two more pieces make it whole: how a direction remembered from an earlier point is *transported* to this
one (for momentum), and how weights *start* (on the sphere, or anywhere). Every piece takes ``over``, the
axes a filter extends over (:mod:`symoptim.geometry.filters`), and leading batch axes.

Ref.: arXiv:1511.01754, Table 1.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from symoptim.geometry.filters import Axes
from symoptim.geometry.scaled import scaled_gradient
from symoptim.geometry.unit_norm import normalize_once, project_to_tangent, retract, transport


class Update(NamedTuple):
    """The four pieces of an update; w weights, g gradient, v a tangent vector."""

    direction: Callable[[Tensor, Tensor, Axes], Tensor]
    """``(w, g, over) -> v``: direction of steepest ascent."""

    transport: Callable[[Tensor, Tensor, Axes], Tensor]
    """``(w, v, over) -> v``: carry a tangent vector of an earlier point to w."""

    move: Callable[[Tensor, Tensor, Axes], Tensor]
    """``(w, v, over) -> w'``: walk from w along v."""

    start: Callable[[Tensor, Axes], Tensor]
    """``(w, over) -> w``: nearest weights the update can begin from."""


def _gradient(w: Tensor, g: Tensor, over: Axes) -> Tensor:
    return g


def _as_it_is(w: Tensor, v: Tensor, over: Axes) -> Tensor:
    return v


def _add(w: Tensor, v: Tensor, over: Axes) -> Tensor:
    return w + v


def _anywhere(w: Tensor, over: Axes) -> Tensor:
    return w


PLAIN = Update(_gradient, _as_it_is, _add, _anywhere)
"""B-SGD: ``w - lr g``."""

SCALED = Update(scaled_gradient, _as_it_is, _add, _anywhere)
"""SM: ``w - lr |w|^2 g``, filter by filter."""

UNIT_NORM = Update(project_to_tangent, transport, retract, normalize_once)
"""UN: ``(w - lr v) / |w - lr v|`` with ``v = g - <g, w> w``, filter by filter."""
