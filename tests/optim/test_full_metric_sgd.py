"""Training in the full metric: whole runs from two points of an orbit coincide, on networks of every kind."""

import copy

import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from symoptim import (
    FullMetricSGD,
    canonicalize_,
    invariant,
)
from tests.support.two_points import (
    ARCHITECTURES,
    INVARIANT,
    OPTIONS,
    PLAIN,
    QUICK,
    THOUSAND,
    TOLERANCE,
    Make,
    a_network,
    disagreement,
    losses,
    moved_along,
    zero_branch,
)
from tests.support.zoo import caught, group_of


def curves_from_two_points(name: str, make: Make) -> tuple[Tensor, Tensor]:
    """Losses from an animal's own weights, and from those moved by scales up to a thousand."""
    here, spec = caught(name), group_of(name)
    there = spec.rescale_(copy.deepcopy(here.model), spec.random(seed=4, spread=THOUSAND))
    return (
        losses(here.model, here.arguments, make(here.model, spec)),
        losses(there, here.arguments, make(there, spec)),
    )


on_every_architecture = pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ARCHITECTURES],
)


@on_every_architecture
@pytest.mark.parametrize("update", INVARIANT)
def test_losses_of_two_orbit_points_coincide(update: str, name: str) -> None:
    here, there = curves_from_two_points(name, INVARIANT[update])
    assert here[-1] < here[0]
    assert disagreement(here, there) <= TOLERANCE


@on_every_architecture
@pytest.mark.parametrize("update", PLAIN)
def test_losses_of_plain_optimizers_split(update: str, name: str) -> None:
    here, there = curves_from_two_points(name, PLAIN[update])
    assert here[-1] < here[0]
    assert disagreement(here, there) > 1e6 * TOLERANCE


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_keeps_the_invariance(name: str) -> None:
    here, there = moved_along(OPTIONS[name])
    assert here[-1] < here[0]
    assert disagreement(here, there) <= TOLERANCE


def test_the_chart_with_plain_sgd_is_full_metric_sgd() -> None:
    model, x, spec = a_network()
    other = copy.deepcopy(model)
    one = losses(model, x, FullMetricSGD(model, spec, lr=0.1))
    two = losses(other, x, invariant(SGD, other, spec=spec, lr=0.1))
    torch.testing.assert_close(one, two, rtol=1e-12, atol=0)


def test_blocks_that_start_at_zero_learn_and_stay_invariant() -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = zero_branch()
        spec.rescale_(model, spec.random(seed=1, spread=far))
        curves.append(losses(model, x, FullMetricSGD(model, spec, lr=0.03)))
        assert (model[2].weight != 0).any()
    assert disagreement(*curves) <= TOLERANCE


@pytest.mark.parametrize("name", [*INVARIANT, "Nesterov and decay", "geometric AdamW"])
def test_rescaling_in_the_middle_of_training_with_the_optimizer_changes_nothing(name: str) -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = a_network()
        optimizer = (INVARIANT | OPTIONS)[name](model, spec)
        losses(model, x, optimizer, steps=10)
        spec.rescale_(model, spec.random(seed=1, spread=far), optimizer=optimizer)
        curves.append(losses(model, x, optimizer, steps=10))
    assert disagreement(*curves) <= TOLERANCE


@pytest.mark.parametrize("name", INVARIANT)
def test_the_canonical_form_in_the_middle_of_training_changes_nothing(name: str) -> None:
    curves: list[Tensor] = []
    for canonical in (False, True):
        model, x, spec = a_network()
        optimizer = INVARIANT[name](model, spec)
        losses(model, x, optimizer, steps=10)
        if canonical:
            canonicalize_(model, spec, optimizer=optimizer)
        curves.append(losses(model, x, optimizer, steps=10))
    assert disagreement(*curves) <= TOLERANCE
