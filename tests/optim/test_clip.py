"""Clipping by a length that no rescaling changes."""

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from optim.two_points import INVARIANT, THOUSAND, TOLERANCE, a_network, disagreement, losses, moved_along
from symoptim import (
    FullMetricSGD,
    ScaledSGD,
    UnitNormSGD,
    clip_invariant_norm_,
    invariant,
)
from symoptim.errors import OptionError


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_clipping_by_the_invariant_norm_keeps_the_invariance(name: str) -> None:
    here, there = moved_along(INVARIANT[name], clip=0.1)
    unclipped, _ = moved_along(INVARIANT[name])
    assert not torch.allclose(here, unclipped)
    assert disagreement(here, there) <= TOLERANCE


def test_plain_clipping_breaks_the_invariance() -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = a_network()
        spec.rescale_(model, spec.random(seed=1, spread=far))
        optimizer = FullMetricSGD(model, spec, lr=0.03)
        clip = lambda _, model=model: nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # noqa: E731
        curves.append(losses(model, x, optimizer, before_step=clip))
    assert disagreement(*curves) > 1e6 * TOLERANCE


def test_clipping_to_nothing_where_there_is_nothing_leaves_zeros() -> None:
    model, _, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert float(clip_invariant_norm_(optimizer, 0.0)) == 0.0
    assert all((parameter.grad == 0).all() for parameter in model.parameters())


def test_scaled_metric_and_its_chart_can_be_clipped_and_unit_norm_says_how() -> None:
    w = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    w.grad = torch.tensor([[1.0, 0.0]])
    for optimizer in (ScaledSGD([w], lr=0.1), invariant(SGD, [w], lr=0.1)):
        assert float(clip_invariant_norm_(optimizer, 100.0)) == 5.0
    with pytest.raises(OptionError, match="clip_grad_norm_ for unit-norm filters"):
        clip_invariant_norm_(UnitNormSGD([w], lr=0.1, normalize=True), 1.0)
    with pytest.raises(OptionError, match="max_norm must be"):
        clip_invariant_norm_(ScaledSGD([w], lr=0.1), -1.0)
