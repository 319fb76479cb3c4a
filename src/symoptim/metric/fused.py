"""The full metric by kernels: what it is asked for on every device."""

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor

from symoptim.metric.sides import Sides

Weights = Mapping[str, Tensor]


class FusedMetric(Protocol):
    """The factors of :meth:`.FullMetric.factors`, as far as they are those of rows and columns."""

    sides: dict[str, Sides]
    """Where they are, by name of the tensor."""

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors at these weights into :attr:`sides`; nothing but values may have changed."""
        ...
