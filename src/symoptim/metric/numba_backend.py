"""The full metric on the CPU: as :mod:`.reference`, in few passes over memory."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from symoptim.kernels import descriptor
from symoptim.kernels.numba import scales
from symoptim.kernels.numba.norms import CpuSquaredNorms
from symoptim.metric.factor_buffers import FactorBuffers
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import INCOMING, Pooled
from symoptim.metric.levels import Level
from symoptim.metric.matrix_view import matrix_readings, table_of
from symoptim.metric.plan import Plan
from symoptim.metric.reference import log_norms
from symoptim.symmetry.tensors import whole_numbers

Weights = Mapping[str, Tensor]
_kernels: Any = scales


class CpuMetric:
    """The metric of tensors on the CPU; see :class:`.FusedMetric`."""

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
        self.buffers = FactorBuffers(metric.layout, tensors, like.device, like.dtype)
        self.factors = self.buffers.by_name
        self.written = _arrays(self.log_scales, self.buffers.positions, self.buffers.weights)
        # The log-scales that sizes are measured with are then those of the metric.
        self.are_found = type(metric.gauge) is Pooled and metric.plans[INCOMING].basis is None

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors; see :class:`.FusedMetric`."""
        tensors = self.tensors or weights()
        sizes = {direction: plan.sizes_of(tensors) for direction, plan in self.plans.items()}
        if not self.are_found:
            found = self.metric.gauge.log_scales(self.metric.layout, sizes, tensors, self.metric.own)
            self.log_scales[:-1] = found
        _kernels.log_sides(*self.written, self.power, self.buffers.values.numpy())
        self.buffers.values.exp_()


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
        self.reader = _LevelReader(level, tensors, log_scales.dtype)
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


class _LevelReader:
    """Reads the norms of one level, reading by reading, as :func:`.reference.log_norms` does."""

    def __init__(self, level: Level, tensors: Mapping[str, Tensor], dtype: torch.dtype):
        """Find out which readings are sums over rows or columns of matrices.

        Args:
            level: what is to be read.
            tensors: by name.
            dtype: precision of the metric; tensors of another one are read otherwise.
        """
        self.reads, self.others = matrix_readings(level.readings, tensors, torch.device("cpu"), dtype)
        self.size = sum(reading.own.stop - reading.own.start for reading in level.readings)
        owner = torch.arange(len(self.reads))
        counts = torch.tensor([len(read.own) for read in self.reads], dtype=torch.long)
        others = torch.tensor([len(read.other) for read in self.reads], dtype=torch.long)
        nothing = torch.zeros(0, dtype=torch.long)
        self.into = torch.cat([nothing, *(read.norms for read in self.reads)])
        self.positions = torch.cat([nothing, *(read.other for read in self.reads)])
        self.factors = torch.zeros(len(self.positions), dtype=dtype)
        self.ends = torch.cat([nothing.new_zeros(1), others.cumsum(0)])
        self.largest = torch.zeros(len(self.reads) + 1, dtype=dtype)
        """Of what is divided out of each matrix; the last is of norms of other readings."""
        self.of_norm = torch.full((self.size,), len(self.reads))
        self.of_norm[self.into] = torch.repeat_interleave(owner, counts)
        self.are_norms = torch.equal(self.into, torch.arange(self.size))
        self.sums = torch.zeros(len(self.into), dtype=torch.float64)
        starts, offsets = whole_numbers(counts.cumsum(0) - counts), whole_numbers(others.cumsum(0) - others)
        self.table = table_of(self.reads, tensors, starts, self.factors, offsets)
        self.launcher = CpuSquaredNorms(self.table, dtype) if self.reads else None

    def __call__(self, weights: Mapping[str, Tensor], log_scales: Tensor) -> Tensor:
        """Logarithms of the norms, in the order of the readings.

        Args:
            weights: by name.
            log_scales: at all positions of the layout.

        Returns:
            One number per position of every reading.
        """
        scales, positions, ends = log_scales.numpy(), self.positions.numpy(), self.ends.numpy()
        _kernels.inverse_scales(scales, positions, ends, self.largest.numpy(), self.factors.numpy())
        self.factors.exp_()
        if self.launcher is not None:
            addresses = [weights[read.reading.tensor].data_ptr() for read in self.reads]
            self.table[:, descriptor.WEIGHTS] = torch.tensor(addresses, device="cpu")
            self.launcher.launch(self.table, self.sums)
        # Norms are of sums of several columns where these move together, pixels of a convolution.
        squared = self.sums
        if not self.are_norms:
            squared = squared.new_zeros(self.size).scatter_add_(0, self.into, squared)
        logs = squared.log().div_(2).to(log_scales.dtype)
        logs += self.largest.index_select(0, self.of_norm)
        for start, reading in self.others:
            found = log_norms(reading, weights[reading.tensor], log_scales)
            logs[start : start + len(found)] = found
        return logs


def _arrays(*tensors: Tensor) -> list[Any]:
    """The same memory, for kernels."""
    return [tensor.numpy() for tensor in tensors]
