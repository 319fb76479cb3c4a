"""No speed without a right answer: a few steps of a contestant against its formula in float64.

The steps are taken on the case's own tensors. Of large ones the first and the last filter and some in between
are looked at, which is enough, as no filter's step depends on another's. Errors are relative to how far the
tensor moved.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from symoptim.bench.contestants import Asked, Contestant
from symoptim.bench.formulas import Formula, Piece
from symoptim.bench.material import Material, Member
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Pooled
from symoptim.symmetry.tensors import model_tensors
from symoptim.updates.catalog import PLAIN
from symoptim.updates.step import StepOptions, step

RATE = 0.1
STEPS = 2
"""The second sees what the first has remembered."""
LOOKED_AT = 2**17
"""Tensors with more elements are not looked at whole."""
SAMPLED = 61

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Rounding is below: steps in bfloat16 without a master copy end up to 0.07 of their length off."""


class Watched(NamedTuple):
    """Filters of a member that are looked at, and what they should become."""

    member: Member
    axis: int
    which: Tensor | None
    piece: Piece

    def now(self) -> Tensor:
        """The filters as they are, in float64."""
        return _taken(self.member.parameter.detach(), self.axis, self.which)


def gate(contestant: Contestant, material: Material, momentum: float) -> float:
    """Largest error of a few steps, relative to how far they went.

    Args:
        contestant: who is tried.
        material: what on; its weights and gradients are overwritten.
        momentum: momentum factor.

    Returns:
        The error; not a number if anything is not.
    """
    material.fill(unit=contestant.unit, tangent=contestant.tangent)
    if contestant.formula is None:
        return _gate_full(contestant, material, momentum)
    members = material.gated()
    watched = [_watch(member) for member in members]
    starts = [one.piece.weights for one in watched]
    stepper = contestant.make(Asked(material=material, members=members, rate=RATE, momentum=momentum))
    for _ in range(1 if contestant.tangent else STEPS):
        stepper.step()
        for one in watched:
            _advance(one, contestant.formula, momentum)
    errors = (_error(one.now(), one.piece.weights, start) for one, start in zip(watched, starts, strict=True))
    return _largest(errors)


def passes(error: float, dtype: torch.dtype) -> bool:
    """Whether an error is rounding.

    >>> passes(1e-6, torch.float32), passes(1e-2, torch.float32), passes(math.nan, torch.float32)
    (True, False, False)
    """
    return error <= TOLERANCES[dtype]


def _watch(member: Member) -> Watched:
    weight, parameter = member.weight, member.parameter
    axis = 1 - weight.axis if weight.geometry == "columns" else weight.axis
    which = None
    if parameter.numel() > LOOKED_AT:
        which = torch.linspace(0, parameter.shape[axis] - 1, SAMPLED).long().to(parameter.device)
    piece = Piece(
        weights=_taken(parameter.detach(), axis, which),
        gradient=_taken(member.gradient, axis, which),
        geometry=weight.geometry,
        over=member.over,
    )
    return Watched(member, axis, which, piece)


def _taken(tensor: Tensor, axis: int, which: Tensor | None) -> Tensor:
    return (tensor if which is None else tensor.index_select(axis, which)).double()


def _advance(one: Watched, formula: Formula, momentum: float) -> None:
    formula(one.piece, RATE, momentum)


def _error(found: Tensor, expected: Tensor, start: Tensor) -> float:
    return float((found - expected).abs().max() / (expected - start).abs().max())


def _largest(errors: Iterator[float]) -> float:
    """Largest of some numbers; not a number if one is not, which ``max`` may overlook."""
    listed = list(errors)
    return math.nan if any(map(math.isnan, listed)) else max(listed)


def _gate_full(contestant: Contestant, material: Material, momentum: float) -> float:
    """The same for the full metric, on the whole network."""
    model, spec = material.whole()
    there = model_tensors(model)
    metric = material.remembered("metric", lambda: FullMetric.of(spec, there, Pooled()))
    tensors = {name: tensor.detach().double().cpu() for name, tensor in there.items()}
    names = [name for name, _ in model.named_parameters()]
    starts = {name: tensors[name] for name in names}
    gradients = {name: one.gradient.double().cpu() for name, one in zip(names, material.members, strict=True)}
    buffers: dict[str, Tensor | None] = dict.fromkeys(names)
    stepper = contestant.make(
        Asked(material=material, members=material.members, rate=RATE, momentum=momentum)
    )
    for _ in range(STEPS):
        stepper.step()
        squares = metric.factors(tensors, 2.0)
        for name in names:
            direction = math.prod(squares.get(name, ()), start=gradients[name])
            options = StepOptions(lr=RATE, momentum=momentum)
            stepped = step(PLAIN, tensors[name], direction, options, buffer=buffers[name])
            tensors[name], buffers[name] = stepped
    moved = dict(model.named_parameters())
    return _largest(
        _error(moved[name].detach().double().cpu(), tensors[name], starts[name]) for name in names
    )
