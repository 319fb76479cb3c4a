"""The full metric on a CUDA device: two or three launches a level, replayed with a single call.

As :mod:`symoptim.metric.reference`, but for the order of sums: there every norm is added to its unit, here a
program reads all norms of a unit, and a norm that is taken in chunks is several of them. So results do not
depend on the order in which a device runs programs.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.kernels.descriptor import OUT, table_rows
from symoptim.kernels.triton.graph import DeviceConstant, keep_alive, record
from symoptim.kernels.triton.norms import LogNorms
from symoptim.kernels.triton.scales import (
    LOG_ONE,
    LOG_ZERO,
    NOTHING,
    InverseScales,
    SparseRows,
    UnitSizes,
    write_factors,
)
from symoptim.kernels.triton.tiling import UnitNorms, norm_chunks, split_large_units
from symoptim.metric.factor_buffers import ALIGNED_ENTRIES, FactorBuffers
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import INCOMING
from symoptim.metric.levels import Level, Reading
from symoptim.metric.matrix_view import MatrixReading, matrix_readings, table_of
from symoptim.metric.plan import Plan
from symoptim.metric.reference import log_norms
from symoptim.metric.term_layout import Layout
from symoptim.symmetry.sparse import Sparse, entries_of

Weights = Mapping[str, Tensor]


class CudaMetric:
    """The metric of tensors that stay where they are on a CUDA device; see :class:`.FusedMetric`."""

    def __init__(
        self, metric: FullMetric, tensors: Weights, power: float, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate the factors, and plan the launches.

        Args:
            metric: on the CPU, in float64.
            tensors: all that is read or stepped, by name; those of another type are read by the reference.
            power: 2 for the step of SGD.
            device: of the tensors.
            dtype: of the factors.
        """
        self.power, self.device, self.gauge = power, device, metric.gauge
        layout = metric.layout
        self.buffers = FactorBuffers(layout, tensors, device, dtype)
        self.factors = self.buffers.by_name
        self.positions = DeviceConstant(self.buffers.positions, device)
        self.weights = DeviceConstant(self.buffers.weights, device)
        self.plans = {
            direction: _CudaPlan(plan, layout, tensors, device, dtype)
            for direction, plan in metric.plans.items()
        }
        everywhere = torch.arange(layout.positions + 1)  # the last has no exponents, and is zero
        self.exponents = _sparse_rows(layout.exponents, everywhere, device)
        self.log_scales = torch.zeros(layout.positions + 1, dtype=torch.float64, device=device)
        self.own: _CudaReduction | None = None
        if metric.own:
            self.own = _CudaReduction(_reduction_of_rows(metric), layout.exponents, tensors, device, dtype)
        # What is of another type is copied first, with its master copy, wherever that is at the time.
        self.is_fixed = all(one.dtype == dtype and one.device == device for one in tensors.values())
        self.graph: torch.cuda.CUDAGraph | None = None

    def refresh(self, weights: Callable[[], Weights]) -> None:
        """Write the factors; see :class:`.FusedMetric`."""
        with torch.cuda.device(self.device):
            if torch.cuda.is_current_stream_capturing():
                keep_alive(self)
                self.enqueue(weights)
            elif self.graph is not None:
                self.graph.replay()
            else:
                self.enqueue(weights)
                if self.is_fixed:
                    self.graph = record(lambda: self.enqueue(weights), self.device)

    def enqueue(self, weights: Callable[[], Weights]) -> None:
        """Launch kernel by kernel."""
        sizes = {direction: plan.sizes_of(weights) for direction, plan in self.plans.items()}
        self.exponents.times(self.gauge.rows(sizes), self.log_scales, sizes[INCOMING])
        if self.own is not None:
            self.own.launch(sizes[INCOMING], weights, self.log_scales, zero=NOTHING)
        positions, factors = self.positions.get(), self.buffers.values
        write_factors(self.log_scales, positions, self.weights.get(), factors, self.power)


class ReductionSpec(NamedTuple):
    """Root mean squares that are to be taken of norms."""

    readings: tuple[Reading, ...]
    """Where norms are taken."""
    unit: Tensor
    """Of every position of the layout the unit that its norm belongs to, or -1."""
    mean: Tensor
    """Of every unit what its sum is multiplied by, and the exponent of its norms, ``(m, 2)``."""
    targets: Tensor
    """Index of its size."""
    is_of_units: bool
    """Whether norms are divided by what is known of their own scales."""


def _reduction_of_units(level: Level, positions: int) -> ReductionSpec:
    """The sizes of a level's units."""
    unit = torch.full((positions,), -1).scatter(0, level.positions, level.unit)
    mean = torch.stack([level.weight, level.exponents], dim=1)
    return ReductionSpec(level.readings, unit, mean, level.generators, is_of_units=True)


def _reduction_of_rows(metric: FullMetric) -> ReductionSpec:
    """The norms of rows that have one of their own."""
    positions = torch.cat([own.which.nonzero().flatten() + own.reading.own.start for own in metric.own])
    unit = torch.full((metric.layout.positions,), -1).scatter(0, positions, torch.arange(len(positions)))
    mean = torch.ones(len(positions), 2, dtype=torch.float64)
    return ReductionSpec(tuple(own.reading for own in metric.own), unit, mean, positions, is_of_units=False)


class _CudaPlan:
    """Levels one after another."""

    def __init__(
        self, plan: Plan, layout: Layout, tensors: Weights, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.sizes, self.in_group = torch.zeros(2, layout.generators, dtype=torch.float64, device=device)
        self.levels: list[_CudaReduction] = []
        nothing = torch.zeros(0, dtype=torch.long)
        known = Sparse(nothing, nothing, torch.zeros(0, dtype=torch.float64))
        for level in plan.levels:
            spec = _reduction_of_units(level, layout.positions)
            self.levels.append(_CudaReduction(spec, known, tensors, device, dtype))
            pairs = zip(known, level.resolved, strict=True)
            known = Sparse(*(torch.cat(pair) for pair in pairs))
        self.basis: SparseRows | None = None
        if plan.basis is not None:
            self.basis = _sparse_rows(plan.basis, torch.arange(layout.generators), device)

    def sizes_of(self, weights: Callable[[], Weights]) -> Tensor:
        """Log-sizes of all generators."""
        self.sizes.zero_()  # what is not read has the size one
        for level in self.levels:
            level.launch(self.sizes, weights, self.sizes, zero=LOG_ONE)
        if self.basis is None:
            return self.sizes
        self.basis.times(self.sizes, self.in_group)
        return self.in_group


class _CudaReduction:
    """Norms of some matrices, and the root mean squares that are taken of them."""

    def __init__(
        self, spec: ReductionSpec, known: Sparse, tensors: Weights, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Plan the launches.

        Args:
            spec: what is taken.
            known: exponents of all positions in generators whose sizes are known.
            tensors: by name.
            device: of the metric.
            dtype: of tensors that kernels read.
        """
        reads, fallback = matrix_readings(spec.readings, tensors, device, dtype)
        self.fallback = [reading for _, reading in fallback]
        """Readings that are left to the reference."""
        self.largest = torch.zeros(len(reads), dtype=torch.float64, device=device)
        others = [read.other for read in reads]
        lengths = [len(other) for other in others]
        *starts, end = accumulate(
            (-(-length // ALIGNED_ENTRIES) * ALIGNED_ENTRIES for length in lengths), initial=0
        )
        self.factors = torch.zeros(end, dtype=dtype, device=device)
        scales = _sparse_rows(known, torch.cat([torch.zeros(0, dtype=torch.long), *others]), device)
        self.inverses = InverseScales(lengths, starts, scales)
        table = table_of(reads, tensors, [0] * len(reads), self.factors, starts)
        sources = _sources(reads, table)
        self.norms = LogNorms(table, device, dtype)
        self.fallback_start = len(sources)
        """Index of the first norm by the reference."""
        by_reference = [torch.arange(one.own.start, one.own.stop) for one in self.fallback]
        positions = torch.cat([torch.zeros(0, dtype=torch.long), *by_reference])
        sources = torch.cat([sources, torch.stack([positions, torch.full_like(positions, -1)], dim=1)])
        units, parts = split_large_units(_unit_norms(spec, *sources.T), len(sources), len(spec.unit))
        self.parts = None if parts is None else _unit_sizes(parts, known, device)
        self.units = _unit_sizes(units, known, device)
        count = len(sources) + (0 if parts is None else len(parts.targets))
        self.logs = torch.zeros(count, dtype=torch.float64, device=device)
        self.scales: SparseRows | None = None
        if self.fallback:
            self.scales = _sparse_rows(known, torch.arange(len(spec.unit)), device)
            self.log_scales = torch.zeros(len(spec.unit), dtype=torch.float64, device=device)

    def launch(self, sizes: Tensor, weights: Callable[[], Weights], out: Tensor, *, zero: int) -> None:
        """Write the root mean squares.

        Args:
            sizes: log-sizes of all generators, as far as they are known.
            weights: all tensors by name; called if some are left to the reference.
            out: where to.
            zero: what is written where norms are zero, of :mod:`symoptim.kernels.triton.scales`.
        """
        self.inverses.launch(sizes, self.largest, self.factors)
        self.norms.launch(self.logs)
        if self.scales is not None:
            self.scales.times(sizes, self.log_scales)
            tensors, start = weights(), self.fallback_start
            for reading in self.fallback:
                norms = log_norms(reading, tensors[reading.tensor].double(), self.log_scales)
                self.logs[start : start + len(norms)] = norms
                start += len(norms)
        if self.parts is not None:
            self.parts.launch(self.logs, self.largest, sizes, self.logs, zero=LOG_ZERO)
        self.units.launch(self.logs, self.largest, sizes, out, zero=zero)


def _sources(reads: Sequence[MatrixReading], table: Tensor) -> Tensor:
    """Position and matrix (or -1) of every norm by kernels, ``(n, 2)``; their indices go into the table."""
    found = [torch.zeros(0, 2, dtype=torch.long)]
    start = 0
    for number, (read, row) in enumerate(zip(reads, table_rows(table), strict=True)):
        table[number, OUT] = start
        chunks = norm_chunks(row)
        positions = read.own.repeat_interleave(chunks) if read.by_rows else read.own.repeat(chunks)
        matrices = torch.full_like(positions, number if len(read.other) else -1)  # if factors are divided out
        found.append(torch.stack([positions, matrices], dim=1))
        start += len(positions)
    return torch.cat(found)


def _unit_norms(spec: ReductionSpec, positions: Tensor, matrices: Tensor) -> UnitNorms:
    """Which norms make up which unit."""
    unit = spec.unit[positions]
    if not spec.is_of_units:
        positions = torch.full_like(positions, len(spec.unit))  # where nothing is known
    sources = torch.stack([torch.arange(len(unit)), matrices, positions], dim=1)
    return UnitNorms(unit[unit >= 0], sources[unit >= 0], spec.mean, spec.targets)


def _unit_sizes(norms: UnitNorms, known: Sparse, device: torch.device) -> UnitSizes:
    """For kernels, units with the fewest norms first."""
    counts = torch.bincount(norms.unit, minlength=len(norms.targets))
    order = counts.argsort(stable=True)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    sources = norms.sources[rank[norms.unit].argsort(stable=True)]
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts[order].cumsum(0)])
    own = _sparse_rows(known, sources[:, 2], device)
    return UnitSizes(starts, sources[:, :2].contiguous(), own, norms.mean[order], norms.targets[order])


def _sparse_rows(matrix: Sparse, rows: Tensor, device: torch.device) -> SparseRows:
    """These rows of a sparse matrix, in this order, for kernels."""
    counts, entries = entries_of(matrix, rows, int(rows.max()) + 1 if len(rows) else 0)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    parts = starts, matrix.columns[entries], matrix.values[entries]
    return SparseRows(*(DeviceConstant(part, device) for part in parts))
