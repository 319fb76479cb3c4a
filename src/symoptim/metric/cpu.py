"""The full metric on the CPU: as :mod:`.measure`, in few passes over memory."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from symoptim.kernels.numba import sizes
from symoptim.metric.cpu_reader import LevelReader
from symoptim.metric.full import FullMetric
from symoptim.metric.gauge import INCOMING, Pooled
from symoptim.metric.levels import Level
from symoptim.metric.plan import Plan
from symoptim.metric.sides import AllSides

Weights = Mapping[str, Tensor]
_kernels: Any = sizes


class CpuMetric:
    """The metric of tensors on the CPU; see :mod:`symoptim.metric.fused`."""

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
        # One past the last position there is nothing.
        self.log_scales = like.new_zeros(metric.layout.positions + 1)
        self.plans = {
            direction: _CpuPlan(plan, metric.layout.generators, self.log_scales, tensors)
            for direction, plan in metric.plans.items()
        }
        self.all = AllSides(metric.layout, tensors, like.device, like.dtype)
        self.sides = self.all.by_name
        self.written = _arrays(self.log_scales, self.all.places, self.all.weights)
        # The log-scales that sizes are measured with are then those of the metric.
        self.are_found = type(metric.gauge) is Pooled and metric.plans[INCOMING].basis is None

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors; see :mod:`symoptim.metric.fused`."""
        tensors = self.tensors or weights()
        sizes = {direction: plan.sizes_of(tensors) for direction, plan in self.plans.items()}
        if not self.are_found:
            found = self.metric.gauge.log_scales(self.metric.layout, sizes, tensors, self.metric.own)
            self.log_scales[:-1] = found
        _kernels.log_sides(*self.written, self.power, self.all.values.numpy())
        self.all.values.exp_()


class _CpuPlan:
    """Levels one after another."""

    def __init__(self, plan: Plan, generators: int, log_scales: Tensor, tensors: Weights) -> None:
        self.basis, self.log_scales = plan.basis, log_scales
        self.sizes = log_scales.new_zeros(generators)
        self.levels = [_CpuLevel(level, self.sizes, log_scales, tensors) for level in plan.levels]

    def sizes_of(self, tensors: Weights) -> Tensor:
        """Log-sizes of all generators."""
        self.sizes.zero_()  # what is not read has the size one
        self.log_scales.zero_()
        for level in self.levels:
            level.write(tensors)
        if self.basis is None:
            return self.sizes
        rows, columns, values = self.basis
        return torch.zeros_like(self.sizes).scatter_add(0, rows, values * self.sizes.index_select(0, columns))


class _CpuLevel:
    """Writes the sizes of the units of a level, and the log-scales that are known then."""

    def __init__(self, level: Level, sizes: Tensor, log_scales: Tensor, tensors: Weights) -> None:
        self.log_scales = log_scales
        self.reader = LevelReader(level, tensors, log_scales.dtype)
        self.own, self.mean = log_scales.new_zeros(len(level.unit)), torch.zeros_like(level.weight)
        largest = torch.zeros_like(level.weight)
        self.centered = _arrays(level.chosen, log_scales, level.positions, level.unit, largest, self.own)
        self.averaged = _arrays(self.own, level.unit, level.weight, self.mean)
        about = largest, self.mean, level.exponents, level.generators
        self.resolved = _arrays(*about, *level.resolved, sizes, log_scales)

    def write(self, tensors: Weights) -> None:
        """Read the norms, and write."""
        norms = self.reader(tensors, self.log_scales)
        _kernels.center(norms.numpy(), *self.centered)
        self.own.exp_()
        _kernels.average(*self.averaged)
        self.mean.log_()
        _kernels.resolve(*self.resolved)


def _arrays(*tensors: Tensor) -> list[Any]:
    """The same memory, for kernels."""
    return [tensor.numpy() for tensor in tensors]
