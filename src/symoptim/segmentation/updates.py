"""The updates a run on scenes can name, each a whole optimizer for one network.

    un, un-momentum           unit-norm filters (the paper's update for this experiment)
    sm                        scaled metric
    sgd, adamw                as everybody uses them, with weight decay
    invariant-adamw           AdamW that does not see the scaling

Filters before batch normalization are what the paper's updates are for; the classifier, the scales and
shifts of batch normalization take plain steps at the same rate. To have another update, put it in:
``SCENE_UPDATES["nadam"] = SceneUpdate("NAdam", make, rate=1e-3)``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from symoptim.errors import OptionError
from symoptim.optim.groups import ParameterGroups, param_groups
from symoptim.optim.invariant import invariant
from symoptim.optim.sgd import ScaledSGD, UnitNormSGD

Make = Callable[[nn.Module, Tensor], Optimizer]
"""Builds the optimizer of a network, with a rate that will change in place, within CUDA graphs too."""


@dataclass(frozen=True, slots=True)
class SceneUpdate:
    """How to build the optimizer, and a rate that does well where none was searched for."""

    title: str
    make: Make
    rate: float


def _groups(model: nn.Module) -> ParameterGroups:
    """Filters before batch normalization as rows; the classifier, which nothing normalizes, plain."""
    names = [name.removesuffix(".weight") for name, _ in model.named_parameters()]
    classifiers = [name for name in names if name.rpartition(".")[2] == "classifier"]
    return param_groups(model, overrides=dict.fromkeys(classifiers, "plain"))


def _unit_norm(model: nn.Module, rate: Tensor, *, momentum: float = 0.0) -> Optimizer:
    return UnitNormSGD(_groups(model), lr=rate, momentum=momentum)


def _sgd(model: nn.Module, rate: Tensor) -> Optimizer:
    # Momentum and decay are those of SegNet's authors. Only the fused step takes a rate from the GPU.
    return SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, fused=rate.is_cuda)


def _adamw(model: nn.Module, rate: Tensor) -> Optimizer:
    return AdamW(model.parameters(), lr=rate, weight_decay=0.05, capturable=rate.is_cuda)


def _invariant_adamw(model: nn.Module, rate: Tensor) -> Optimizer:
    return invariant(AdamW, _groups(model), lr=rate, weight_decay=0.05, capturable=rate.is_cuda)


SCENE_UPDATES: dict[str, SceneUpdate] = {
    "un": SceneUpdate("UN", _unit_norm, rate=0.1),
    "un-momentum": SceneUpdate("UN, momentum", partial(_unit_norm, momentum=0.9), rate=0.01),
    "sm": SceneUpdate("SM", lambda model, rate: ScaledSGD(_groups(model), lr=rate), rate=0.1),
    "sgd": SceneUpdate("SGD", _sgd, rate=0.02),
    "adamw": SceneUpdate("AdamW", _adamw, rate=1e-3),
    "invariant-adamw": SceneUpdate("invariant AdamW", _invariant_adamw, rate=1e-3),
}
"""Every update by its name."""


def require_updates(names: Iterable[str]) -> None:
    """Refuse names that are not registered.

    >>> require_updates(["sm", "lion"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    symoptim.errors.OptionError: unknown update 'lion'; choose from un, un-momentum, sm, sgd, adamw, inv...
    """
    for name in names:
        if name not in SCENE_UPDATES:
            raise OptionError(f"unknown update '{name}'; choose from {', '.join(SCENE_UPDATES)}")
