"""Whole training runs from two points of an orbit coincide; plain SGD's and AdamW's do not."""

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, AdamW

from symoptim import ScaledSGD, UnitNormSGD, invariant, param_groups
from symoptim.geometry.filters import COLUMNS, ROWS
from symoptim.geometry.rescaling import Weights, act
from symoptim.geometry.scaled import scaled_inner
from tests.support.trajectories import (
    MakeOptimizer,
    curves_from_two_points,
    disagreement,
    falls_by_half,
    network,
)

INVARIANT: dict[str, MakeOptimizer] = {
    "SM": lambda model: ScaledSGD(param_groups(model), lr=1e-3),
    "SM, momentum": lambda model: ScaledSGD(param_groups(model), lr=1e-4, momentum=0.9),
    "SM, Nesterov, decay": lambda model: ScaledSGD(
        param_groups(model), lr=1e-4, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "invariant AdamW": lambda model: invariant(AdamW, param_groups(model), lr=1e-3),
}
UNIT_NORM: dict[str, MakeOptimizer] = {
    "UN": lambda model: UnitNormSGD(param_groups(model), lr=1e-3, normalize=True),
    "UN, momentum": lambda model: UnitNormSGD(param_groups(model), lr=1e-4, momentum=0.9, normalize=True),
}
PLAIN: dict[str, MakeOptimizer] = {
    "SGD": lambda model: SGD(model.parameters(), lr=1e-3),
    "AdamW": lambda model: AdamW(model.parameters(), lr=1e-3),
}
TOLERANCE = 1e-10


# Unit-norm filters fix one scaling: only behind batch normalization do they not see it.
COINCIDE = [(1, name) for name in INVARIANT] + [(2, name) for name in (*INVARIANT, *UNIT_NORM)]


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize(("architecture", "name"), COINCIDE)
def test_losses_of_two_orbit_points_coincide(name: str, architecture: int, depth: int) -> None:
    make = (INVARIANT | UNIT_NORM)[name]
    balanced, rescaled = curves_from_two_points(architecture, depth, make)
    assert falls_by_half(balanced)
    assert falls_by_half(rescaled)
    assert disagreement(balanced, rescaled) <= TOLERANCE


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("architecture", [1, 2])
@pytest.mark.parametrize("name", PLAIN)
def test_losses_of_plain_optimizers_split(name: str, architecture: int, depth: int) -> None:
    balanced, rescaled = curves_from_two_points(architecture, depth, PLAIN[name])
    assert falls_by_half(balanced)
    assert disagreement(balanced, rescaled) > TOLERANCE * 1e6


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("architecture", [1, 2])
def test_metric_of_equation_8_is_the_same_at_both_orbit_points(architecture: int, depth: int) -> None:
    model = network(architecture, depth)
    scales = model.random_scales(seed=3)
    weights = Weights(tuple(w.detach() for w in model.weights().hidden), model.classifier.weight.detach())
    change = Weights(tuple(torch.randn_like(w) for w in weights.hidden), torch.randn_like(weights.classifier))
    here = _squared_length(weights, change)
    there = _squared_length(act(weights, scales), act(change, scales))
    torch.testing.assert_close(there, here, rtol=1e-12, atol=0)


def _squared_length(weights: Weights, change: Weights) -> Tensor:
    """Eq. (8): rows of the hidden weights, columns of the classifier."""
    hidden = sum(scaled_inner(w, d, d, ROWS) for w, d in zip(weights.hidden, change.hidden, strict=True))
    return hidden + scaled_inner(weights.classifier, change.classifier, change.classifier, COLUMNS)
