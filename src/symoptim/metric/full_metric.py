"""The full metric of a model: a scale for every weight that moves with it under the whole group."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from symoptim.geometry.tensors import gathered
from symoptim.metric.gauge import Gauge, Own
from symoptim.metric.levels import Level
from symoptim.metric.plan import Plan, plan_of
from symoptim.metric.reference import measured
from symoptim.metric.term_layout import Layout, layout_of
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import unique_values


@dataclass(frozen=True, slots=True)
class FullMetric:
    r"""All of the metric but the weights: what moves with what, in which order sizes are read, the gauge.

    For weights :math:`\theta` and an element l of the group, the scales s of :meth:`factors` satisfy
    :math:`s(e^{B l} \theta) = e^{B l} s(\theta)`, entry by entry.

    >>> from torch import nn
    >>> from symoptim.metric.gauge import Pooled
    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    >>> model.load_state_dict({"0.weight": torch.tensor([[3.0, 4.0]]), "2.weight": torch.tensor([[1.0]])})
    <All keys matched successfully>
    >>> spec, weights = discover(model, (torch.rand(2, 2),)), dict(model.named_parameters())
    >>> metric = FullMetric.of(spec, weights, Pooled())
    >>> {name: round((one * other).item(), 6) for name, (one, other) in metric.factors(weights).items()}
    {'0.weight': 5.0, '2.weight': 0.2}
    """

    layout: Layout
    alive: Tensor
    """Positions of the layout that had anything but zeros when the metric was made."""
    plans: Mapping[int, Plan]
    """Order of reading, by direction."""
    gauge: Gauge
    own: tuple[Own, ...] = ()
    """Rows with norms of their own."""

    @staticmethod
    def of(
        spec: SymmetrySpec, tensors: Mapping[str, Tensor], gauge: Gauge, alive: Tensor | None = None
    ) -> "FullMetric":
        """The metric of a model.

        Args:
            spec: its group.
            tensors: its parameters and buffers by name.
            gauge: how sizes become scales.
            alive: which blocks to count as not zero, of an earlier metric; by default it is looked at.

        Returns:
            The metric, on the CPU, in float64.
        """
        layout = layout_of(spec, spec.tensors)
        if alive is None:
            alive = _alive_positions(layout, tensors)
        plans = {
            direction: plan_of(layout, tensors, alive, direction=direction) for direction in gauge.directions
        }
        return FullMetric(layout, alive, plans, gauge, gauge.own_rows(layout, tensors, alive))

    def tensors_read(self) -> set[str]:
        """Names of the tensors that sizes are read off."""
        levels = [level for plan in self.plans.values() for level in plan.levels]
        return {reading.tensor for level in levels for reading in level.readings}

    def unmeasured(self) -> Tensor:
        """Numbers of generators that move more than zeros, and that no weight could be found to measure."""
        rows, columns, _ = self.layout.exponents
        moving, _ = unique_values(columns[self.alive[rows]])
        left: list[Tensor] = []
        for plan in self.plans.values():
            read = torch.cat([moving[:0], *(level.generators for level in plan.levels)])
            left.append(moving[~torch.isin(moving, read)])
        return unique_values(torch.cat(left))[0]

    def log_scales(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Log-scales at all positions of the layout.

        Args:
            weights: all tensors of the group, by name.

        Returns:
            ``(positions,)``.
        """
        sizes = {direction: measured(self.layout, plan, weights) for direction, plan in self.plans.items()}
        return self.gauge.log_scales(self.layout, sizes, weights, self.own)

    def factors(self, weights: Mapping[str, Tensor], power: float = 1.0) -> dict[str, tuple[Tensor, ...]]:
        """Scales of every tensor that moves, to a power: factors that broadcast, to be multiplied.

        Args:
            weights: all tensors of the group, by name.
            power: 2 for the step of SGD, 1 for the chart.

        Returns:
            Factors by name.
        """
        log_scales = power * self.log_scales(weights)
        return {
            name: _shared_out([term.of(log_scales) for term in terms])
            for name, terms in self.layout.terms.items()
            if terms
        }

    def on(self, device: torch.device, dtype: torch.dtype) -> "FullMetric":
        """The same metric, to be used with weights there and in that precision."""

        def moved(exponents: Sparse) -> Sparse:
            rows, columns, values = exponents
            return Sparse(rows.to(device), columns.to(device), values.to(device, dtype))

        def placed(level: Level) -> Level:
            return Level(
                level.readings,
                level.chosen.to(device),
                level.positions.to(device),
                level.unit.to(device),
                level.weight.to(device, dtype),
                level.generators.to(device),
                level.exponents.to(device, dtype),
                moved(level.resolved),
            )

        plans = {
            direction: Plan(
                tuple(map(placed, plan.levels)), None if plan.basis is None else moved(plan.basis)
            )
            for direction, plan in self.plans.items()
        }
        layout = self.layout._replace(exponents=moved(self.layout.exponents))
        own = tuple(rows._replace(which=rows.which.to(device)) for rows in self.own)
        return FullMetric(layout, self.alive.to(device), plans, self.gauge, own)


def _shared_out(logs: list[Tensor]) -> tuple[Tensor, ...]:
    """Factors of about the same size, two at least: deep in a network they would be too large for float32."""
    if len(logs) == 1:
        logs = [logs[0] / 2, logs[0] / 2]
    means = [log.mean() for log in logs]
    common = sum(means[1:], means[0]) / len(means)
    return tuple((log - mean + common).exp() for log, mean in zip(logs, means, strict=True))


def _alive_positions(layout: Layout, weights: Mapping[str, Tensor]) -> Tensor:
    """Positions that have anything but zeros."""
    alive = torch.zeros(layout.positions, dtype=torch.bool)
    for name, terms in layout.terms.items():
        nonzero = gathered(weights[name].detach() != 0)
        for term in terms:
            alive[term.start : term.stop] = term.seen_by(nonzero, torch.any).reshape(-1).cpu()
    return alive
