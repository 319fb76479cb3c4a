"""Everybody else: torch's own optimizers, and those of the same class in other packages.

Packages that are not installed are named and left out. Where a rival knows matrices only, convolutions are
given to it as matrices of filters, over the same memory: it then does what it is for.
"""

import warnings
from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from itertools import chain
from typing import Any

from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from symoptim.bench.contestants import Asked, Contestant, Stepper
from symoptim.bench.formulas import PLAIN_UPDATES, adamw, geoopt, oblique, pure, sgdp
from symoptim.bench.material import Member
from symoptim.bench.ours import OURS
from symoptim.bench.records import REFERENCE
from symoptim.errors import OptionError

Parameters = list[Tensor]


def _fresh(members: list[Member]) -> Parameters:
    return [member.fresh() for member in members]


def _sgd(**how: Any) -> Callable[[Asked], Stepper]:
    return lambda asked: SGD(_fresh(asked.members), lr=asked.rate, momentum=asked.momentum, **how)


def _adamw(**how: Any) -> Callable[[Asked], Stepper]:
    return lambda asked: AdamW(_fresh(asked.members), lr=asked.rate, **how)


def _imported(module: str, name: str) -> Any:
    """A class of another package, whose warnings are its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(import_module(module), name)


def _geoopt(asked: Asked) -> Stepper:
    sphere, manifold_parameter = _imported("geoopt", "Sphere")(), _imported("geoopt", "ManifoldParameter")
    parameters: Parameters = []
    for member in asked.members:
        parameter = member.fresh(flat=member.has_rows)
        if member.has_rows:
            gradient = parameter.grad
            parameter = manifold_parameter(parameter.detach(), manifold=sphere)
            parameter.grad = gradient
        parameters.append(parameter)
    return _imported("geoopt.optim", "RiemannianSGD")(parameters, lr=asked.rate, momentum=asked.momentum)


def _sgdp(module: str) -> Callable[[Asked], Stepper]:
    def make(asked: Asked) -> Stepper:
        return _imported(module, "SGDP")(_fresh(asked.members), lr=asked.rate, momentum=asked.momentum)

    return make


class Together:
    """Several optimizers that step together."""

    def __init__(self, *optimizers: Optimizer) -> None:
        """Join them."""
        self.optimizers = optimizers

    @property
    def state(self) -> Mapping[Any, MutableMapping[str, Any]]:
        """What any of them remembers."""
        return dict(chain.from_iterable(one.state.items() for one in self.optimizers))

    def step(self) -> None:
        """Take a step."""
        for one in self.optimizers:
            one.step()


def _oblique(asked: Asked) -> Stepper:
    """Matrices of filters, and the rest by fused SGD: it takes matrices only."""
    kind = _imported("emerging_optimizers.riemannian_optimizers.normalized_optimizer", "ObliqueSGD")
    rows = [member.fresh(flat=True) for member in asked.members if member.has_rows]
    rest = [member.fresh() for member in asked.members if not member.has_rows]
    optimizers = [kind(rows, lr=asked.rate, momentum=asked.momentum, dim=1)]
    if rest:
        optimizers.append(SGD(rest, lr=asked.rate, momentum=asked.momentum, fused=True))
    return Together(*optimizers)


RIVALS: list[Contestant] = [
    Contestant(name=REFERENCE, title="SGD, fused", make=_sgd(fused=True), formula=pure(PLAIN_UPDATES)),
    Contestant(
        name="sgd-foreach", title="SGD, foreach", make=_sgd(foreach=True), formula=pure(PLAIN_UPDATES)
    ),
    Contestant(
        name="adamw-fused",
        title="AdamW, fused",
        make=_adamw(fused=True),
        formula=adamw,
        copies=lambda _: 2.0,
        always_remembers=True,
    ),
    Contestant(
        name="adamw-foreach",
        title="AdamW, foreach",
        make=_adamw(foreach=True),
        formula=adamw,
        copies=lambda _: 3.0,  # its square roots are tensors too
        always_remembers=True,
    ),
    Contestant(
        name="geoopt",
        title="geoopt, sphere",
        make=_geoopt,
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
        copies=lambda _: 1.0,
        tangent=True,
    ),
    Contestant(
        name="sgdp-collection",
        title="SGDP (pytorch-optimizer)",
        make=_sgdp("pytorch_optimizer"),
        formula=sgdp,
        package="pytorch_optimizer",
        install="pip install pytorch-optimizer",
        copies=lambda _: 1.0,
        tangent=True,
    ),
    Contestant(
        name="oblique",
        title="ObliqueSGD (NVIDIA)",
        make=_oblique,
        formula=oblique,
        package="emerging_optimizers",
        install="pip install git+https://github.com/NVIDIA-NeMo/Emerging-Optimizers",
        copies=lambda _: 1.0,
        unit=True,
        remark="its momentum buffer is never written to: a step without momentum",
    ),
]
"""All of them."""

CONTESTANTS: Mapping[str, Contestant] = {one.name: one for one in (*RIVALS, *OURS)}
"""Everybody, by name."""


def contestants_named(names: tuple[str, ...] | None, *, compiled: bool) -> list[Contestant]:
    """Those that were asked for, and the one all are compared with.

    Args:
        names: of :data:`CONTESTANTS`; everybody by default.
        compiled: whether those that have to be compiled belong to everybody.

    Returns:
        The contestants.

    Raises:
        OptionError: there is none of that name.
    """
    if names is None:
        return [one for one in CONTESTANTS.values() if compiled or not one.compiles]
    for name in names:
        if name not in CONTESTANTS:
            raise OptionError(f"unknown optimizer '{name}'; choose from {', '.join(CONTESTANTS)}")
    return [one for one in CONTESTANTS.values() if one.name in {REFERENCE, *names}]
