"""``symoptim bench`` with optimizers of other packages, and with our pure steps compiled by torch.

    python benchmarks/rivals.py --cases resnet50,tiny --out results/mine.jsonl      options as symoptim bench
    python benchmarks/rivals.py my_model.py:make --input 8,3,224,224 --optimizers sgd-fused,geoopt,sm-fused

    geoopt, sgdp, sgdp-collection, oblique     RiemannianSGD, SGDP of two packages, ObliqueSGD
    sm-compiled, un-compiled                   with --compile: torch.compile over the list of weights

Packages that are not installed are named and left out. Where one takes matrices only, convolutions are given
to it as matrices of filters, over the same memory: it then does what it is for. The formulas they are
compared with, in float64:

    geoopt       the unit-norm step; with momentum as its code has it: the buffer starts at the gradient of
                 the surrounding space, so that the first step is 1 + momentum times as long
    SGDP         SGD whose update loses its component along the filters where gradients are orthogonal to them
    ObliqueSGD   the unit-norm step without momentum, whatever is asked: its buffer is never written to
"""

import sys
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from symoptim.bench.formulas import SCALED_UPDATES, UNIT_NORM_UPDATES, Filters, Updates, pure
from symoptim.bench.optimizers import CONTESTANTS, Contestant, Setup, Stepper
from symoptim.errors import OptionError, SymoptimError
from symoptim.geometry.filters import inner
from symoptim.geometry.unit_norm import project_to_tangent, retract
from symoptim.updates.step import StepOptions, Stepped, step


def geoopt(filters: Filters, rate: float, momentum: float) -> None:
    """RiemannianSGD on spheres, Euclidean for what has no rows."""
    if not momentum:
        pure(UNIT_NORM_UPDATES)(filters, rate, 0.0)
        return
    on_sphere = filters.geometry == "rows"
    w, g = filters.weights, filters.gradient
    tangent = project_to_tangent(w, g, filters.over) if on_sphere else g
    buffer = momentum * filters.state.get("momentum", g) + tangent
    filters.weights = retract(w, -rate * buffer, filters.over) if on_sphere else w - rate * buffer
    if on_sphere:
        buffer = project_to_tangent(filters.weights, buffer, filters.over)
    filters.state["momentum"] = buffer


def sgdp(filters: Filters, rate: float, momentum: float) -> None:
    """SGDP where gradients of rows are orthogonal to them, and those of anything else are not."""
    w = filters.weights
    buffer = momentum * filters.recall("momentum") + filters.gradient
    if filters.geometry == "rows" and w.ndim > 1:
        buffer = buffer - inner(w, buffer, filters.over) / inner(w, w, filters.over) * w
    filters.state["momentum"] = buffer
    filters.weights = w - rate * buffer


def oblique(filters: Filters, rate: float, momentum: float) -> None:
    """ObliqueSGD for rows, SGD for anything else."""
    pure(UNIT_NORM_UPDATES)(filters, rate, 0.0 if filters.geometry == "rows" else momentum)


def _imported(module: str, name: str) -> Any:
    """A class of another package, whose warnings are its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(import_module(module), name)


def _make_geoopt(setup: Setup) -> Stepper:
    sphere, manifold_parameter = _imported("geoopt", "Sphere")(), _imported("geoopt", "ManifoldParameter")
    parameters: list[Tensor] = []
    for pair in setup.pairs:
        parameter = pair.new_parameter(flat=pair.has_rows)
        if pair.has_rows:
            gradient = parameter.grad
            parameter = manifold_parameter(parameter.detach(), manifold=sphere)
            parameter.grad = gradient
        parameters.append(parameter)
    return _imported("geoopt.optim", "RiemannianSGD")(parameters, lr=setup.lr, momentum=setup.momentum)


def _sgdp(module: str) -> Callable[[Setup], Stepper]:
    return lambda setup: _imported(module, "SGDP")(setup.parameters(), lr=setup.lr, momentum=setup.momentum)


class Joined:
    """Several optimizers that step together."""

    def __init__(self, *optimizers: Optimizer) -> None:
        """Join them."""
        self.optimizers = optimizers

    @property
    def state(self) -> Mapping[Any, MutableMapping[str, Any]]:
        """State of all of them."""
        return dict(chain.from_iterable(one.state.items() for one in self.optimizers))

    def step(self) -> None:
        """Take a step."""
        for one in self.optimizers:
            one.step()


def _make_oblique(setup: Setup) -> Stepper:
    """Matrices of filters, and the rest by fused SGD: it takes matrices only."""
    kind = _imported("emerging_optimizers.riemannian_optimizers.normalized_optimizer", "ObliqueSGD")
    rows = [pair.new_parameter(flat=True) for pair in setup.pairs if pair.has_rows]
    rest = [pair.new_parameter() for pair in setup.pairs if not pair.has_rows]
    optimizers = [kind(rows, lr=setup.lr, momentum=setup.momentum, dim=1)]
    if rest:
        optimizers.append(SGD(rest, lr=setup.lr, momentum=setup.momentum, fused=True))
    return Joined(*optimizers)


COMPILED_TENSORS = 300
"""More are not compiled as one: the compiler would take minutes."""


class Compiled:
    """The pure step over a list of weights, compiled as one function."""

    def __init__(self, setup: Setup, updates: Updates) -> None:
        """Make the buffers; the first step compiles.

        Args:
            setup: what to step and how.
            updates: update by geometry.

        Raises:
            OptionError: the weights are of half precision, or too many.
        """
        if setup.tensors.dtype.itemsize < torch.float32.itemsize:
            raise OptionError("the compiled step keeps no master copies: float32 only")
        if len(setup.pairs) > COMPILED_TENSORS:
            raise OptionError(f"{len(setup.pairs)} tensors take too long to compile")
        self.pairs, self.updates = setup.pairs, updates
        self.options = StepOptions(lr=setup.lr, momentum=setup.momentum)
        self.buffers = [torch.zeros_like(pair.gradient) if setup.momentum else None for pair in setup.pairs]
        self.state = {n: {"momentum": b} for n, b in enumerate(self.buffers) if b is not None}
        # On CPUs torch 2.13 fails to compile a row's sum together with writing the row: that comes after.
        self.copies = setup.tensors.device.type == "cpu"
        compiler = cast("Any", torch)
        compiler._dynamo.config.recompile_limit = 1000  # for every case one; beyond it nothing is compiled
        weights = [
            (pair.parameter.detach(), pair.gradient, pair.weight.geometry, pair.over) for pair in self.pairs
        ]

        def step_all() -> list[Stepped]:
            found = [
                step(self.updates[geometry], w, g, self.options, buffer=buffer, over=over)
                for (w, g, geometry, over), buffer in zip(weights, self.buffers, strict=True)
            ]
            return found if self.copies else self._write(found)

        self.compiled: Callable[[], list[Stepped]] = compiler.compile(step_all, dynamic=False, fullgraph=True)

    def _write(self, found: list[Stepped]) -> list[Stepped]:
        for pair, buffer, stepped in zip(self.pairs, self.buffers, found, strict=True):
            pair.parameter.detach().copy_(stepped.weights)
            if buffer is not None and stepped.buffer is not None:
                buffer.copy_(stepped.buffer)
        return []

    @torch.no_grad()
    def step(self) -> None:
        """Take a step."""
        found = self.compiled()
        if self.copies:
            self._write(found)


def _compiled(key: str, updates: Updates) -> Contestant:
    return Contestant(
        name=f"{key}-compiled",
        title=f"{key.upper()}, compiled",
        make=lambda setup: Compiled(setup, updates),
        formula=pure(updates),
        compiles=True,
    )


RIVALS = (
    Contestant(
        name="geoopt",
        title="geoopt, sphere",
        make=_make_geoopt,
        formula=geoopt,
        package="geoopt",
        install="pip install geoopt",
        unit=True,
        remark="with momentum its first step is 1 + momentum times as long",
    ),
    Contestant(
        name="sgdp",
        title="SGDP (adamp)",
        make=_sgdp("adamp"),
        formula=sgdp,
        package="adamp",
        install="pip install adamp",
        copies=1.0,
        tangent=True,
    ),
    Contestant(
        name="sgdp-collection",
        title="SGDP (pytorch-optimizer)",
        make=_sgdp("pytorch_optimizer"),
        formula=sgdp,
        package="pytorch_optimizer",
        install="pip install pytorch-optimizer",
        copies=1.0,
        tangent=True,
    ),
    Contestant(
        name="oblique",
        title="ObliqueSGD (NVIDIA)",
        make=_make_oblique,
        formula=oblique,
        package="emerging_optimizers",
        install="pip install git+https://github.com/NVIDIA-NeMo/Emerging-Optimizers",
        copies=1.0,
        unit=True,
        remark="its momentum buffer is never written to: a step without momentum",
    ),
    _compiled("sm", SCALED_UPDATES),
    _compiled("un", UNIT_NORM_UPDATES),
)


def register() -> None:
    """Add them to the optimizers that ``symoptim bench`` knows."""
    CONTESTANTS.update({one.name: one for one in RIVALS})


if __name__ == "__main__":
    from symoptim.cli.app import app

    register()
    try:
        app(["bench", *sys.argv[1:]], prog_name="python benchmarks/rivals.py")
    except SymoptimError as error:
        sys.exit(f"error: {error}")
