"""The updates a run on scenes can name, each a whole optimizer for one network.

    un, un-momentum           unit-norm filters (the paper's update for this experiment)
    sm                        scaled metric
    sgd, sgd-plain, adamw     as everybody uses them, with weight decay
    invariant-adamw           AdamW that does not see the scaling

Filters before batch normalization are what the paper's updates are for; the classifier, the scales and
shifts of batch normalization take plain steps at the same rate. To have another update, put it in:
``SCENE_OPTIMIZERS["nadam"] = SceneOptimizer(make, 1e-3, "as in torch")``, and its title into
:data:`symoptim.paper.updates.UPDATES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from symoptim.optim.invariant import invariant
from symoptim.optim.param_groups import ParameterGroups, param_groups
from symoptim.optim.sgd import ScaledSGD, UnitNormSGD

Make = Callable[[nn.Module, Tensor], Optimizer]
"""Builds the optimizer of a network, with a rate that will change in place, within CUDA graphs too."""


@dataclass(frozen=True, slots=True)
class SceneOptimizer:
    """How to build the optimizer, in words too, and a rate that does well where none was searched for."""

    make: Make
    rate: float
    words: str


def _groups(model: nn.Module) -> ParameterGroups:
    """Filters before batch normalization as rows; the classifier, which nothing normalizes, plain."""
    names = [name.removesuffix(".weight") for name, _ in model.named_parameters()]
    classifiers = [name for name in names if name.rpartition(".")[2] == "classifier"]
    return param_groups(model, overrides=dict.fromkeys(classifiers, "plain"))


def _unit_norm(model: nn.Module, rate: Tensor, *, momentum: float = 0.0) -> Optimizer:
    # Batch normalization follows, so that the norms of these filters are of no consequence.
    return UnitNormSGD(_groups(model), lr=rate, momentum=momentum, normalize=True)


def _decayed(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Weights with decay, biases and everything of batch normalization without."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _sgd(model: nn.Module, rate: Tensor, *, momentum: float) -> Optimizer:
    # Decay as SegNet's authors have it. Only the fused step takes a rate from the GPU.
    return SGD(_decayed(model, 5e-4), lr=rate, momentum=momentum, fused=rate.is_cuda)


def _adamw(model: nn.Module, rate: Tensor) -> Optimizer:
    return AdamW(_decayed(model, 0.05), lr=rate, capturable=rate.is_cuda)


def _invariant_adamw(model: nn.Module, rate: Tensor) -> Optimizer:
    groups: list[dict[str, Any]] = []
    for group in _groups(model):
        for matrices in (True, False):  # decay as in _decayed: the classifier shares its group with biases
            chosen = [k for k, p in enumerate(group["params"]) if (p.ndim > 1) == matrices]
            lists = {name: [group[name][k] for k in chosen] for name in ("params", "param_names")}
            groups += [{**group, **lists, "weight_decay": 0.05 if matrices else 0.0}] if chosen else []
    return invariant(AdamW, groups, lr=rate, capturable=rate.is_cuda)


PLAINLY = "everything else by plain SGD at the same rate"


SCENE_OPTIMIZERS: dict[str, SceneOptimizer] = {
    "un": SceneOptimizer(
        _unit_norm, 0.1, f"filters before batch normalization on the unit sphere, {PLAINLY}"
    ),
    "un-momentum": SceneOptimizer(
        partial(_unit_norm, momentum=0.9), 0.01, f"as UN, with momentum .9, {PLAINLY}"
    ),
    "sm": SceneOptimizer(
        lambda model, rate: ScaledSGD(_groups(model), lr=rate),
        0.1,
        f"filters before batch normalization in the scaled metric, {PLAINLY}",
    ),
    "sgd": SceneOptimizer(partial(_sgd, momentum=0.9), 0.02, "momentum .9, decay 5e-4 of weights"),
    "sgd-plain": SceneOptimizer(partial(_sgd, momentum=0.0), 0.1, "decay 5e-4 of weights, no momentum"),
    "adamw": SceneOptimizer(_adamw, 3e-4, "decay .05 of weights"),
    "invariant-adamw": SceneOptimizer(
        _invariant_adamw,
        3e-4,
        "decay .05 of weights, filters before batch normalization in coordinates that do not see their scale",
    ),
}
"""Every update by its name."""
