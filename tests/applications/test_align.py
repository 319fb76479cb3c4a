"""Alignment: a rescaled checkpoint can be averaged again."""

import copy

import pytest
import torch
from torch import nn

from symoptim.applications.align import align
from symoptim.symmetry.trials import difference
from tests.support.networks import NETWORKS, distance
from tests.support.soundness import outputs
from tests.support.zoo import caught, group_of


def nudged(model: nn.Module) -> nn.Module:
    """A copy trained on, so to speak."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.05 * parameter.abs().max() * torch.randn_like(parameter))
    return other


def mean(one: nn.Module, other: nn.Module) -> nn.Module:
    found = copy.deepcopy(one)
    with torch.no_grad():
        for average, parameter in zip(found.parameters(), other.parameters(), strict=True):
            average.add_(parameter).div_(2)
    return found


@pytest.mark.parametrize("name", NETWORKS[::4])
def test_a_rescaled_copy_comes_back(name: str) -> None:
    (model, arguments, _), spec = caught(name), group_of(name)
    other = spec.rescale_(copy.deepcopy(model), spec.random(spread=2.0))
    before = copy.deepcopy(other)
    aligned = align(model, other, spec)
    assert distance(model, aligned) < 1e-10
    assert distance(before, other) == 0
    assert difference(outputs(other, arguments), outputs(aligned, arguments)) < 1e-10


@pytest.mark.parametrize("name", ["arch1", "gpt, layer norm, gelu"])
def test_means_after_alignment_do_not_depend_on_a_rescaling(name: str) -> None:
    (model, _, _), spec = caught(name), group_of(name)
    other = nudged(model)
    rescaled = spec.rescale_(copy.deepcopy(other), spec.random(spread=2.0))
    plain = mean(model, align(model, other, spec))
    assert distance(plain, mean(model, align(model, rescaled, spec))) < 1e-10
    assert distance(plain, mean(model, rescaled)) > 0.1  # what alignment is for


def test_copies_that_were_never_rescaled_hardly_move() -> None:
    (model, _, _), spec = caught("arch1"), group_of("arch1")
    other = nudged(model)
    assert distance(other, align(model, other, spec)) < 0.1
