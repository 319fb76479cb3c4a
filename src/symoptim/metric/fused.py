"""The full metric by kernels: what it is asked for on every device, and how it is found on the CPU."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from symoptim.metric.full import FullMetric
from symoptim.metric.levels import Level
from symoptim.metric.reader import LevelReader
from symoptim.metric.sides import AllSides, Sides

Weights = Mapping[str, Tensor]


class FusedMetric(Protocol):
    """The factors of :meth:`.FullMetric.factors`, as far as they are those of rows and columns."""

    sides: dict[str, Sides]
    """Where they are, by name of the tensor."""

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors at these weights into :attr:`sides`; nothing but values may have changed."""
        ...


class CpuMetric:
    """The metric of tensors on the CPU."""

    def __init__(self, metric: FullMetric, tensors: Weights, power: float, *, are_copies: bool) -> None:
        """Lay the factors out.

        Args:
            metric: on the CPU, in the tensors' precision.
            tensors: all that is read or stepped, by name.
            power: 2 for the step of SGD.
            are_copies: whether any of them is a copy in the metric's precision, to be made anew every time.
        """
        self.metric, self.power = metric, power
        self.tensors = None if are_copies else tensors
        like = metric.layout.exponents.values
        self.readers = {
            id(level): LevelReader(level, tensors, like.device, like.dtype)
            for plan in metric.plans.values()
            for level in plan.levels
        }
        self.all = AllSides(metric.layout, tensors, like.device, like.dtype)
        self.sides = self.all.by_name

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors; see :class:`FusedMetric`."""

        def read(level: Level, tensors: Weights, log_scales: Tensor) -> Tensor:
            return self.readers[id(level)](tensors, log_scales)

        log_scales = self.metric.log_scales(self.tensors or weights(), read)
        known = torch.cat([log_scales, log_scales.new_zeros(1)])
        own, added, taken = known.index_select(0, self.all.places.view(-1)).view(-1, 3).unbind(1)
        logs = torch.addcmul((added - taken) / 2, own, self.all.weights)
        torch.exp(logs.mul_(self.power), out=self.all.values)
