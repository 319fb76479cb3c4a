"""The full metric on a CUDA device: two or three launches a level, replayed with a single call.

As :mod:`symoptim.metric.reference`, but for the way sums are put down: there every norm is added to its unit,
here every unit knows its norms, and one that is taken in pieces is several of them. So nothing depends on the
order in which a device gets to work.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from symoptim.kernels.triton.measure import Rows, write_sides
from symoptim.kernels.triton.members import AS_ONE, KEPT
from symoptim.kernels.triton.mirror import Mirror, keep
from symoptim.kernels.triton.record import record
from symoptim.metric.factor_buffers import FactorBuffers
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import INCOMING
from symoptim.metric.levels import Level
from symoptim.metric.plan import Plan
from symoptim.metric.triton.level import CudaLevel, Sought, chosen_rows
from symoptim.symmetry.sparse import Sparse

Weights = Mapping[str, Tensor]


class CudaMetric:
    """The metric of tensors that stay where they are on a CUDA device; see :class:`.FusedMetric`."""

    def __init__(
        self, metric: FullMetric, tensors: Weights, power: float, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Lay the factors out, and plan the launches.

        Args:
            metric: on the CPU, in float64.
            tensors: all that is read or stepped, by name; those of another type are read by the reference.
            power: 2 for the step of SGD.
            device: of the tensors.
            dtype: of the factors.
        """
        self.power, self.device, self.gauge = power, device, metric.gauge
        layout = metric.layout
        self.all = FactorBuffers(layout, tensors, device, dtype)
        self.factors = self.all.by_name
        self.places, self.weights = (Mirror(one, device) for one in (self.all.positions, self.all.weights))
        self.plans = {
            direction: _CudaPlan(plan, tensors, layout.generators, layout.positions, device, dtype)
            for direction, plan in metric.plans.items()
        }
        everywhere = torch.arange(layout.positions + 1)  # the last has no exponents, and is zero
        self.exponents = chosen_rows(layout.exponents, everywhere, device)
        self.log_scales = torch.zeros(layout.positions + 1, dtype=torch.float64, device=device)
        self.own: CudaLevel | None = None
        if metric.own:
            self.own = CudaLevel(_own_rows(metric), layout.exponents, tensors, device, dtype)
        # What is of another type is copied first, with its master copy, wherever that is at the time.
        self.is_fixed = all(one.dtype == dtype and one.device == device for one in tensors.values())
        self.graph: torch.cuda.CUDAGraph | None = None

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors; see :class:`.FusedMetric`."""
        with torch.cuda.device(self.device):
            if torch.cuda.is_current_stream_capturing():
                keep(self)
                self._enqueue(weights)
            elif self.graph is not None:
                self.graph.replay()
            else:
                self._enqueue(weights)
                if self.is_fixed:
                    self.graph = record(lambda: self._enqueue(weights), self.device)

    def _enqueue(self, weights: Callable[[], Weights]) -> None:
        sizes = {direction: plan.sizes_of(weights) for direction, plan in self.plans.items()}
        self.exponents.times(self.gauge.rows(sizes), self.log_scales, sizes[INCOMING])
        if self.own is not None:
            self.own.write(sizes[INCOMING], weights, self.log_scales, zero=KEPT)
        write_sides(self.log_scales, self.places.get(), self.weights.get(), self.all.values, self.power)


class _CudaPlan:
    """Levels one after another."""

    def __init__(
        self,
        plan: Plan,
        tensors: Weights,
        generators: int,
        positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.sizes, self.in_group = torch.zeros(2, generators, dtype=torch.float64, device=device)
        self.levels: list[CudaLevel] = []
        nothing = torch.zeros(0, dtype=torch.long)
        known = Sparse(nothing, nothing, torch.zeros(0, dtype=torch.float64))
        for level in plan.levels:
            self.levels.append(CudaLevel(_units(level, positions), known, tensors, device, dtype))
            pairs = zip(known, level.resolved, strict=True)
            known = Sparse(*(torch.cat(pair) for pair in pairs))
        self.basis: Rows | None = None
        if plan.basis is not None:
            self.basis = chosen_rows(plan.basis, torch.arange(generators), device)

    def sizes_of(self, weights: Callable[[], Weights]) -> Tensor:
        """Log-sizes of all generators."""
        self.sizes.zero_()  # what is not read has the size one
        for level in self.levels:
            level.write(self.sizes, weights, self.sizes, zero=AS_ONE)
        if self.basis is None:
            return self.sizes
        self.basis.times(self.sizes, self.in_group)
        return self.in_group


def _units(level: Level, positions: int) -> Sought:
    """What is sought of a level: the sizes of its units."""
    unit = torch.full((positions,), -1).scatter(0, level.positions, level.unit)
    about = torch.stack([level.weight, level.exponents], dim=1)
    return Sought(level.readings, unit, about, level.generators, is_of_units=True)


def _own_rows(metric: FullMetric) -> Sought:
    """What is sought of rows that have a norm of their own: that norm."""
    positions = torch.cat([own.which.nonzero().flatten() + own.reading.own.start for own in metric.own])
    unit = torch.full((metric.layout.positions,), -1).scatter(0, positions, torch.arange(len(positions)))
    about = torch.ones(len(positions), 2, dtype=torch.float64)
    return Sought(tuple(own.reading for own in metric.own), unit, about, positions, is_of_units=False)
