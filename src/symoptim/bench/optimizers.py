"""The optimizers that are measured: torch's, and ours by kernels and as reference."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from symoptim import FullMetricSGD, ScaledSGD, SymmetrySpec, UnitNormSGD, invariant
from symoptim.bench.cases import Case, Weight
from symoptim.bench.formulas import (
    PLAIN_UPDATES,
    SCALED_UPDATES,
    UNIT_NORM_UPDATES,
    Formula,
    Updates,
    adamw,
    full_metric,
    invariant_adamw,
    pure,
)
from symoptim.bench.records import REFERENCE
from symoptim.bench.tensors import CaseTensors, Pair, first_line
from symoptim.errors import OptionError
from symoptim.routing import Geometry

Geometric = type[ScaledSGD] | type[UnitNormSGD]


class Stepper(Protocol):
    """Anything that takes steps and keeps tensors between them, such as an optimizer."""

    @property
    def state(self) -> Mapping[Any, MutableMapping[str, Any]]:
        """What it keeps, by parameter."""
        ...

    def step(self) -> object:
        """Take a step."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What an optimizer is made for: pairs of a case, and the numbers of a step."""

    tensors: CaseTensors
    pairs: list[Pair]
    lr: float
    momentum: float

    def parameters(self) -> list[Tensor]:
        """New parameters over the memory of the pairs."""
        return [pair.new_parameter() for pair in self.pairs]


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """An optimizer to be measured."""

    name: str
    title: str
    make: Callable[[Setup], Stepper]
    formula: Formula
    needs_network: bool = False
    """It is made of a whole network and its symmetries."""
    package: str = ""
    """Module it needs besides torch and this package."""
    install: str = ""
    """How to get that."""
    copies: float | None = None
    """Tensors as large as the weights that it keeps; by default one for momentum."""
    has_own_momentum: bool = False
    """It is not compared with steps without momentum."""
    unit: bool = False
    """It is checked on rows of unit norm, which it does not make itself."""
    tangent: bool = False
    """It is checked by one step with gradients orthogonal to rows: with others it would be plain SGD."""
    compiles: bool = False
    """It takes long to make, and is measured only where asked for."""
    remark: str = ""
    """What is to be known of its momentum."""

    @cache  # noqa: B019 - there are few, and they stay
    def missing(self, device: torch.device, dtype: torch.dtype) -> str:
        """Why it cannot be measured there, tried on two small tensors; empty if it can."""
        if self.package and find_spec(self.package) is None:
            return f"not installed: {self.install}"
        if self.needs_network:
            return ""  # it would take a whole network to try
        try:
            self._try(device, dtype)
        except Exception as error:
            return first_line(error)
        return ""

    def _try(self, device: torch.device, dtype: torch.dtype) -> None:
        """Make it, and take a step if that needs no compiler."""
        trial = Case(name="trial", title="trial", weights=(Weight((2, 3)), Weight((3,), "plain")))
        tensors = CaseTensors(trial, device, dtype, symmetries=False)
        tensors.fill(unit=True, tangent=False)
        stepper = self.make(Setup(tensors=tensors, pairs=tensors.pairs, lr=0.1, momentum=0.9))
        if not self.compiles:
            stepper.step()


def grouped(pairs: list[Pair], **more: Any) -> list[dict[str, Any]]:
    """Parameter groups by geometry and axis."""
    kinds: dict[tuple[Geometry, int], list[Tensor]] = {}
    for pair in pairs:
        kinds.setdefault((pair.weight.geometry, pair.weight.axis), []).append(pair.new_parameter())
    return [
        {"params": params, "geometry": kind, "axis": axis, **more} for (kind, axis), params in kinds.items()
    ]


def _sgd(**options: Any) -> Callable[[Setup], Stepper]:
    return lambda setup: SGD(setup.parameters(), lr=setup.lr, momentum=setup.momentum, **options)


def _geometric(kind: Geometric, *, fused: bool) -> Callable[[Setup], Stepper]:
    def make(setup: Setup) -> Stepper:
        groups = grouped(setup.pairs, normalize=True)
        return kind(groups, lr=setup.lr, momentum=setup.momentum, fused=fused)

    return make


def _of_network(
    name: str,
    title: str,
    formula: Formula,
    build: Callable[[nn.Module, SymmetrySpec], Optimizer],
    **more: Any,
) -> Contestant:
    """An optimizer of a whole network."""

    def make(setup: Setup) -> Stepper:
        model, spec = setup.tensors.network()
        # It takes seconds to be made for a large network: one is kept, and begins anew with an empty state.
        optimizer = setup.tensors.cached(name, lambda: build(model, spec))
        optimizer.state.clear()
        for group in optimizer.param_groups:
            group.update(lr=setup.lr, **({"momentum": setup.momentum} if "momentum" in group else {}))
        return optimizer

    return Contestant(name=name, title=title, make=make, formula=formula, needs_network=True, **more)


def _update(key: str, kind: Geometric, updates: Updates) -> list[Contestant]:
    """An update of the paper, by kernels and as reference."""
    return [
        Contestant(
            name=f"{key}-{way}",
            title=f"{key.upper()}, {way}",
            make=_geometric(kind, fused=way == "fused"),
            formula=pure(updates),
        )
        for way in ("fused", "reference")
    ]


def _adamw(name: str, title: str, copies: float, **options: Any) -> Contestant:
    return Contestant(
        name=name,
        title=title,
        make=lambda setup: AdamW(setup.parameters(), lr=setup.lr, **options),
        formula=adamw,
        copies=copies,
        has_own_momentum=True,
    )


CONTESTANTS: dict[str, Contestant] = {
    one.name: one
    for one in (
        Contestant(name=REFERENCE, title="SGD, fused", make=_sgd(fused=True), formula=pure(PLAIN_UPDATES)),
        Contestant(
            name="sgd-foreach", title="SGD, foreach", make=_sgd(foreach=True), formula=pure(PLAIN_UPDATES)
        ),
        _adamw("adamw-fused", "AdamW, fused", 2.0, fused=True),
        _adamw("adamw-foreach", "AdamW, foreach", 3.0, foreach=True),  # its square roots are tensors too
        *_update("sm", ScaledSGD, SCALED_UPDATES),
        *_update("un", UnitNormSGD, UNIT_NORM_UPDATES),
        _of_network("full-fused", "full metric, fused", full_metric, partial(FullMetricSGD, fused=True)),
        _of_network(
            "full-reference",
            "full metric, reference",
            full_metric,
            partial(FullMetricSGD, fused=False),
        ),
        _of_network(
            "full-adamw",
            "full metric, AdamW",
            invariant_adamw,
            lambda model, spec: invariant(AdamW, model, spec=spec, fused=True),
            copies=3.0,
            has_own_momentum=True,
        ),
        Contestant(
            name="invariant-adamw",
            title="invariant AdamW",
            make=lambda setup: invariant(AdamW, grouped(setup.pairs), lr=setup.lr, fused=True),
            formula=invariant_adamw,
            copies=3.0,
            has_own_momentum=True,
        ),
    )
}
"""All optimizers by name; ``benchmarks/rivals.py`` adds those of other packages."""

FOR_MODELS = ("adamw-fused", "sm-fused", "un-fused", "full-fused", "full-adamw", "invariant-adamw")
"""What a model of the user's own is measured with, unless asked otherwise."""


def contestants_named(names: tuple[str, ...] | None, *, compiled: bool) -> list[Contestant]:
    """Optimizers by name, and the one all are compared with.

    Args:
        names: of :data:`CONTESTANTS`; all by default.
        compiled: whether those that have to be compiled belong to all.

    Raises:
        OptionError: there is none of that name.
    """
    if names is None:
        return [one for one in CONTESTANTS.values() if compiled or not one.compiles]
    for name in names:
        if name not in CONTESTANTS:
            raise OptionError(
                f"unknown optimizer '{name}'; choose from {', '.join(CONTESTANTS)}; "
                "those of other packages are measured in a clone, by python benchmarks/rivals.py"
            )
    return [one for one in CONTESTANTS.values() if one.name in {REFERENCE, *names}]
