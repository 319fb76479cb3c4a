r"""The chart of the full metric: any optimizer, invariant to all rescalings of a model.

As :mod:`symoptim.optim.chart`, with s the scale that the full metric gives every single weight instead of the
norm of its filter. With SGD and no momentum it is exactly :class:`.full.FullMetricSGD`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from symoptim.optim.apply import Factors
from symoptim.optim.bound import BoundMetric
from symoptim.optim.chart import Charted
from symoptim.optim.checks import Group
from symoptim.optim.full import require_of_model, take_up


class FullyCharted(Charted):
    """Mixin that takes the step of the class after it in the coordinates q = w / s, s of the full metric."""

    state_exponents: ClassVar[Mapping[str, int]] = {}
    """Powers of the weight's scale by which state moves: none does, it is in coordinates that do not."""

    def __init__(self, bound: BoundMetric, params: Any, **options: Any) -> None:
        """Take the metric, and the parameters and options of the wrapped class."""
        self.bound = bound
        super().__init__(params, **options)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of the model's parameters."""
        super().add_param_group({**param_group, "geometry": "plain", **self.bound.saved()})

    def _check(self, group: Group) -> None:
        super()._check(group)
        require_of_model(group, self.bound)

    def scales(self) -> Factors:
        """Scales s of the parameters that move with any rescaling of the model."""
        return self.bound.factors({}, 1.0)

    def _finish_loading(self, saved: dict[str, Any]) -> None:
        super()._finish_loading(saved)
        take_up(self.bound, self.param_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "bound": self.bound}
