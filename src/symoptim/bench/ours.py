"""Our own contestants: SM, UN and the full metric, each fused, as a reference, and compiled."""

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from symoptim.bench.contestants import Asked, Contestant, Stepper
from symoptim.bench.formulas import SCALED_UPDATES, UNIT_NORM_UPDATES, Updates, pure
from symoptim.bench.material import Member
from symoptim.errors import OptionError
from symoptim.geometry.filters import Axes
from symoptim.optim.base import GeometricSGD
from symoptim.optim.full_metric_sgd import FullMetricSGD
from symoptim.optim.sgd import ScaledSGD, UnitNormSGD
from symoptim.routing import Geometry
from symoptim.updates.step import StepOptions, Stepped, step

COMPILED_TENSORS = 300
"""More are not compiled as one: the compiler would take minutes."""


def _fused_keyword(kind: type[GeometricSGD], *, fused: bool) -> dict[str, Any]:
    """The keyword that asks for the fused step or the reference; versions without it have the latter only."""
    known = "fused" in inspect.signature(kind).parameters
    if fused and not known:
        raise OptionError(f"{kind.__name__} of this version takes no fused=")
    return {"fused": fused} if known else {}


def _groups(members: list[Member]) -> list[dict[str, Any]]:
    """Parameter groups by geometry and axis."""
    kinds: dict[tuple[Geometry, int], list[Tensor]] = {}
    for member in members:
        kinds.setdefault((member.weight.geometry, member.weight.axis), []).append(member.fresh())
    return [
        {"params": params, "geometry": kind, "axis": axis, "normalize": True}
        for (kind, axis), params in kinds.items()
    ]


def _by_groups(kind: type[GeometricSGD], *, fused: bool) -> Callable[[Asked], Stepper]:
    def make(asked: Asked) -> Stepper:
        keyword = _fused_keyword(kind, fused=fused)
        return kind(_groups(asked.members), lr=asked.rate, momentum=asked.momentum, **keyword)

    return make


def _in_full(*, fused: bool) -> Callable[[Asked], Stepper]:
    def make(asked: Asked) -> Stepper:
        keyword = _fused_keyword(FullMetricSGD, fused=fused)
        model, spec = asked.material.whole()
        # It takes seconds to be made for a large network: one is kept, and begins anew with an empty state.
        optimizer = asked.material.remembered(
            f"full metric, fused={fused}", lambda: FullMetricSGD(model, spec, **keyword)
        )
        optimizer.state.clear()
        for group in optimizer.param_groups:
            group.update(lr=asked.rate, momentum=asked.momentum)
        return optimizer

    return make


class Compiled:
    """The pure step over a list of weights, compiled as one function."""

    def __init__(self, asked: Asked, updates: Updates) -> None:
        """Make the buffers; the first step compiles.

        Args:
            asked: what to step and how.
            updates: update by geometry.

        Raises:
            OptionError: the weights are of half precision, or too many.
        """
        if asked.material.dtype.itemsize < torch.float32.itemsize:
            raise OptionError("the compiled step keeps no master copies: float32 only")
        if len(asked.members) > COMPILED_TENSORS:
            raise OptionError(f"{len(asked.members)} tensors take too long to compile")
        self.members: list[tuple[Tensor, Tensor, Geometry, Axes]] = [
            (m.parameter.detach(), m.gradient, m.weight.geometry, m.over) for m in asked.members
        ]
        self.updates, self.options = updates, StepOptions(lr=asked.rate, momentum=asked.momentum)
        self.buffers = [torch.zeros_like(w) if asked.momentum else None for w, *_ in self.members]
        self.state = {n: {"momentum": b} for n, b in enumerate(self.buffers) if b is not None}
        # On CPUs torch 2.13 fails to compile a row's sum together with writing the row: that comes after.
        self.copies = asked.material.device.type == "cpu"
        compiler = cast("Any", torch)
        compiler._dynamo.config.recompile_limit = 1000  # for every case one; beyond it nothing is compiled
        self.compiled: Callable[[], list[Stepped]] = compiler.compile(
            self._step_all, dynamic=False, fullgraph=True
        )

    def _step_all(self) -> list[Stepped]:
        found: list[Stepped] = []
        for (weights, gradient, geometry, over), buffer in zip(self.members, self.buffers, strict=True):
            update = self.updates[geometry]
            found.append(step(update, weights, gradient, self.options, buffer=buffer, over=over))
        if self.copies:
            return found
        self._write(found)
        return []

    def _write(self, found: list[Stepped]) -> None:
        for (weights, *_), buffer, stepped in zip(self.members, self.buffers, found, strict=True):
            weights.copy_(stepped.weights)
            if buffer is not None and stepped.buffer is not None:
                buffer.copy_(stepped.buffer)

    @torch.no_grad()
    def step(self) -> None:
        """Take a step."""
        found = self.compiled()
        if self.copies:
            self._write(found)


def _three(name: str, kind: type[GeometricSGD], updates: Updates) -> list[Contestant]:
    """An update of the paper: fused, reference, compiled."""
    formula, key = pure(updates), name.lower()
    return [
        Contestant(
            name=f"{key}-fused", title=f"{name}, fused", make=_by_groups(kind, fused=True), formula=formula
        ),
        Contestant(
            name=f"{key}-reference",
            title=f"{name}, reference",
            make=_by_groups(kind, fused=False),
            formula=formula,
        ),
        Contestant(
            name=f"{key}-compiled",
            title=f"{name}, compiled",
            make=lambda asked: Compiled(asked, updates),
            formula=formula,
            compiles=True,
        ),
    ]


OURS: list[Contestant] = [
    *_three("SM", ScaledSGD, SCALED_UPDATES),
    *_three("UN", UnitNormSGD, UNIT_NORM_UPDATES),
    Contestant(
        name="full-fused",
        title="full metric, fused",
        make=_in_full(fused=True),
        formula=None,
        require=lambda: _fused_keyword(FullMetricSGD, fused=True),
    ),
    Contestant(
        name="full-reference", title="full metric, reference", make=_in_full(fused=False), formula=None
    ),
]
"""All of them."""
