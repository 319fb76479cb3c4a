r"""The chart of the full metric: any optimizer, invariant to all rescalings of a model.

As :mod:`symoptim.optim.chart`, with s the scale that the full metric gives every single weight instead of the
norm of its filter. With SGD and no momentum it is exactly :class:`.full.FullMetricSGD`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from symoptim.optim.bound import BoundMetric
from symoptim.optim.chart import Charted
from symoptim.optim.in_full_metric import InFullMetric


class FullyCharted(InFullMetric, Charted):
    """Mixin that takes the step of the class after it in the coordinates q = w / s, s of the full metric."""

    state_exponents: ClassVar[Mapping[str, int]] = {}
    """Powers of the weight's scale by which state moves: none does, it is in coordinates that do not."""

    def __init__(self, bound: BoundMetric, params: Any, **options: Any) -> None:
        """Take the metric, and the parameters and options of the wrapped class."""
        self.bound = bound
        super().__init__(params, **options)
