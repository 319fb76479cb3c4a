r"""The formula of every optimizer, in float64: what its steps are compared with before it is timed.

SM, UN, SGD        the pure step of :mod:`symoptim.updates.step`
AdamW              the recurrence of PyTorch's documentation, with its decay of 0.01
full metric        SGD with the gradient times :math:`s^2`, s the scale of every weight
invariant AdamW    AdamW of w / s with the gradient s g: :math:`w' = w + s (q' - q)`, q = w / s
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from symoptim.geometry.filters import Axes, norm
from symoptim.routing import Geometry
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update
from symoptim.updates.step import StepOptions, step

Updates = Mapping[Geometry, Update]

SCALED_UPDATES: Updates = {"rows": SCALED, "columns": SCALED, "plain": PLAIN}
UNIT_NORM_UPDATES: Updates = {"rows": UNIT_NORM, "columns": PLAIN, "plain": PLAIN}
PLAIN_UPDATES: Updates = {"rows": PLAIN, "columns": PLAIN, "plain": PLAIN}

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 1e-2
"""AdamW's defaults."""


@dataclass(kw_only=True, slots=True)
class Filters:
    """Filters of a weight in float64, with the state of the optimizer."""

    weights: Tensor
    gradient: Tensor
    geometry: Geometry
    over: Axes
    state: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    metric_scale: Tensor | None = None
    """Scale of every weight in the full metric, where that is what is measured."""

    def recall(self, name: str) -> Tensor:
        """An entry of the state; zero at first."""
        return self.state.get(name, torch.zeros_like(self.weights))

    @property
    def scale(self) -> Tensor:
        """What moves as the weights do when they are rescaled: in the full metric, or a filter's norm."""
        if self.metric_scale is not None:
            return self.metric_scale
        return torch.ones_like(self.weights) if self.geometry == "plain" else norm(self.weights, self.over)


Formula = Callable[[Filters, float, float], None]
"""Steps filters with a rate and a momentum."""


def pure(updates: Updates) -> Formula:
    """The pure step of an update by geometry."""

    def formula(filters: Filters, rate: float, momentum: float) -> None:
        stepped = step(
            updates[filters.geometry],
            filters.weights,
            filters.gradient,
            StepOptions(lr=rate, momentum=momentum),
            buffer=filters.state.get("momentum"),
            over=filters.over,
        )
        filters.weights = stepped.weights
        if stepped.buffer is not None:
            filters.state["momentum"] = stepped.buffer

    return formula


def adamw(filters: Filters, rate: float, momentum: float) -> None:
    """AdamW with its defaults; it has no ``momentum``."""
    del momentum
    number = filters.recall("number") + 1
    first = BETAS[0] * filters.recall("first") + (1 - BETAS[0]) * filters.gradient
    second = BETAS[1] * filters.recall("second") + (1 - BETAS[1]) * filters.gradient.square()
    filters.state |= {"number": number, "first": first, "second": second}
    ahead, spread = first / (1 - BETAS[0] ** number), second / (1 - BETAS[1] ** number)
    filters.weights = filters.weights * (1 - rate * DECAY) - rate * ahead / (spread.sqrt() + EPS)


def full_metric(filters: Filters, rate: float, momentum: float) -> None:
    """SGD in the full metric."""
    scaled = replace(filters, gradient=filters.gradient * filters.scale.square())
    pure(PLAIN_UPDATES)(scaled, rate, momentum)
    filters.weights = scaled.weights


def invariant_adamw(filters: Filters, rate: float, momentum: float) -> None:
    """AdamW in coordinates that no rescaling changes."""
    scale = filters.scale
    before = filters.weights / scale
    inside = replace(filters, weights=before, gradient=filters.gradient * scale)
    adamw(inside, rate, momentum)
    filters.weights = filters.weights + scale * (inside.weights - before)
