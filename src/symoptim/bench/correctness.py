"""A few steps of an optimizer against its formula in float64: timings are reported only for those that match.

The steps are taken on the case's own tensors. Of large ones the first and the last filter and some in between
are compared, which is enough, as no filter's step depends on another's; in the full metric it does, and all
are compared. Errors are relative to how far the tensor moved.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from symoptim import Pooled
from symoptim.bench.formulas import Filters
from symoptim.bench.optimizers import Contestant, Setup
from symoptim.bench.tensors import CaseTensors, Pair
from symoptim.metric.full_metric import FullMetric
from symoptim.symmetry.tensors import model_tensors

RATE = 0.1
STEPS = 2
"""The second step depends on the state the first has left."""
COMPARED_WHOLE = 2**17
"""Of tensors with more elements some filters are compared."""
SAMPLED = 61

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Rounding is below: steps in bfloat16 without a master copy end up to 0.07 of their length off."""


@dataclass(kw_only=True, slots=True)
class Compared:
    """Filters of a pair, and what they should become."""

    pair: Pair
    axis: int
    which: Tensor | None
    filters: Filters
    start: Tensor

    @staticmethod
    def of(pair: Pair, *, whole: bool) -> "Compared":
        """Take the filters of a pair as they are, or some of them."""
        weight, parameter = pair.weight, pair.parameter
        axis = 1 - weight.axis if weight.geometry == "columns" else weight.axis
        which = None
        if parameter.numel() > COMPARED_WHOLE and not whole:
            which = torch.linspace(0, parameter.shape[axis] - 1, SAMPLED).long().to(parameter.device)
        start = _taken(parameter.detach(), axis, which)
        filters = Filters(
            weights=start,
            gradient=_taken(pair.gradient, axis, which),
            geometry="plain" if whole else weight.geometry,
            over=pair.over,
        )
        return Compared(pair=pair, axis=axis, which=which, filters=filters, start=start)

    def error(self) -> float:
        """Largest error, relative to how far the formula has moved anything."""
        found = _taken(self.pair.parameter.detach(), self.axis, self.which)
        expected = self.filters.weights
        return float((found - expected).abs().max() / (expected - self.start).abs().max())


def error_of(contestant: Contestant, tensors: CaseTensors, momentum: float) -> float:
    """Largest error of a few steps, relative to how far they went.

    Args:
        contestant: what is checked.
        tensors: what on; weights and gradients are overwritten.
        momentum: momentum factor.

    Returns:
        The error; not a number if anything is not.
    """
    tensors.fill(unit=contestant.unit, tangent=contestant.tangent)
    whole = contestant.needs_network
    pairs = tensors.pairs if whole else tensors.checked_pairs()
    compared = [Compared.of(pair, whole=whole) for pair in pairs]
    scales = _Scales(tensors, compared) if whole else None
    stepper = contestant.make(Setup(tensors=tensors, pairs=pairs, lr=RATE, momentum=momentum))
    for _ in range(1 if contestant.tangent else STEPS):
        stepper.step()
        if scales is not None:
            scales.refresh()
        for one in compared:
            contestant.formula(one.filters, RATE, momentum)
    errors = [one.error() for one in compared]
    return math.nan if any(map(math.isnan, errors)) else max(errors)  # which max() may overlook


def passes(error: float, dtype: torch.dtype) -> bool:
    """Whether an error is rounding.

    >>> passes(1e-6, torch.float32), passes(1e-2, torch.float32), passes(math.nan, torch.float32)
    (True, False, False)
    """
    return error <= TOLERANCES[dtype]


class _Scales:
    """Scales of all weights of a network in the full metric, in float64."""

    def __init__(self, tensors: CaseTensors, compared: list[Compared]) -> None:
        model, spec = tensors.network()
        found = model_tensors(model)
        self.metric = tensors.cached("metric", lambda: FullMetric.of(spec, found, Pooled()))
        self.fixed = {name: _taken(tensor.detach(), 0, None) for name, tensor in found.items()}
        filters = {id(one.pair.parameter): one.filters for one in compared}
        # A tied parameter has several names, of which the metric knows one.
        self.filters = {name: filters[id(one)] for name, one in found.items() if id(one) in filters}

    def refresh(self) -> None:
        """Write the scales of the weights as they are to the filters."""
        weights = self.fixed | {name: filters.weights for name, filters in self.filters.items()}
        for filters in self.filters.values():
            filters.metric_scale = torch.ones_like(filters.weights)
        for name, factors in self.metric.factors(weights).items():
            if filters := self.filters.get(name):
                filters.metric_scale = math.prod(factors, start=torch.ones_like(filters.weights))


def _taken(tensor: Tensor, axis: int, which: Tensor | None) -> Tensor:
    return (tensor if which is None else tensor.index_select(axis, which)).double().cpu()
