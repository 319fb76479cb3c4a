"""What kernels cannot take is left to the reference, or refused by name; nothing is stepped wrongly."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, discover
from symoptim.errors import GradientError, OptionError
from symoptim.optim import fused as fused_steps

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


def test_a_gradient_that_is_refused_changes_nothing_whatever_its_precision() -> None:
    both = [nn.Parameter(torch.randn(3, 4, dtype=dtype)) for dtype in (torch.float32, torch.float64)]
    optimizer = ScaledSGD(both, lr=0.01)
    for weight in both:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    before = [weight.detach().clone() for weight in both]
    both[1].grad = torch.ones_like(both[1]).to_sparse()
    with pytest.raises(GradientError, match="sparse"):
        optimizer.step()
    assert all(map(torch.equal, both, before))


def test_a_step_that_was_refused_can_be_mended() -> None:
    found: list[torch.Tensor] = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).double()
        x = torch.rand(3, 4, dtype=torch.float64)
        optimizer = FullMetricSGD(model, discover(model, (x,)), lr=0.1, fused=fused)
        model(x).square().mean().backward()
        optimizer.step()
        gradient = model[0].weight.grad
        if fused:
            model[0].weight.grad = gradient.T.contiguous().T
            with pytest.raises(OptionError, match="strides"):
                optimizer.step()
            model[0].weight.grad = gradient
        held = torch.full((1000,), 7.0, dtype=torch.float64)  # memory that factors may have been in
        optimizer.step()
        assert held.eq(7).all()
        found.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)


def test_a_parameter_that_was_left_is_taken_once_its_gradient_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    weight.grad = torch.ones(4, 1).expand(4, 4)
    optimizer = ScaledSGD([weight], lr=0.01)
    optimizer.step()
    taken: list[int] = []
    monkeypatch.setattr(fused_steps, "launcher", lambda _, __, table: taken.append(len(table)))
    weight.grad = torch.ones(4, 4)
    with pytest.raises(AttributeError):  # there are no kernels now
        optimizer.step()
    assert taken == [1]


def test_tensors_without_memory_of_their_own_are_left() -> None:
    found: list[torch.Tensor] = []
    for fused in (None, False):
        torch.manual_seed(0)
        weight = nn.Parameter(TwoTensor(torch.randn(3, 4), torch.randn(3, 4)))
        weight.grad = TwoTensor(torch.ones(3, 4), torch.ones(3, 4))
        ScaledSGD([weight], lr=0.01, fused=fused).step()
        found.append(weight.detach().a)
    assert torch.equal(*found)
    with pytest.raises(OptionError, match="does not say where its entries are"):
        ScaledSGD([weight], lr=0.01, fused=True).step()


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("fused", [True, None, False])
def test_a_gradient_of_another_shape_is_refused_before_anything_changes(
    fused: bool | None, steps: int
) -> None:
    both = [nn.Parameter(torch.randn(4, 3)) for _ in range(2)]
    for weight in both:
        weight.grad = torch.ones(4, 3)
    optimizer = ScaledSGD(both, lr=0.01, momentum=0.9, fused=fused)
    for _ in range(steps):
        optimizer.step()
    both[1].data = torch.randn(64, 3)
    before = both[0].detach().clone()
    with pytest.raises(
        GradientError, match=r"parameter 1 .* has shape \(4, 3\), the parameter itself \(64, 3\)"
    ):
        optimizer.step()
    assert torch.equal(both[0], before)


def test_state_that_does_not_suit_is_refused() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD([weight], lr=0.01, momentum=0.9, fused=True)
    for wrong in (torch.zeros(2, 4), torch.zeros(4, 4, dtype=torch.float64)):
        optimizer.state[weight]["momentum_buffer"] = wrong
        with pytest.raises(OptionError, match="cannot take a fused step: its momentum_buffer is"):
            optimizer.step()


def test_negated_views_shared_memory_and_late_decay_are_refused() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    weight.grad = torch._neg_view(torch.ones(4, 4))
    with pytest.raises(OptionError, match="lazily negated view"):
        ScaledSGD([weight], lr=0.01, fused=True).step()
    weight.grad = torch.ones(4, 4)
    twin = nn.Parameter(weight.data[1:])
    twin.grad = torch.ones_like(twin)
    with pytest.raises(OptionError, match="share memory"):
        ScaledSGD([weight, twin], lr=0.01, fused=True).step()
    optimizer = UnitNormSGD([weight], lr=0.01, fused=True, normalize=True)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(OptionError, match="knows no weight decay"):
        optimizer.step()


def _with_gaps() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(4, 6, dtype=torch.float64)[:, ::2]), _whole()]


def _overlapping() -> list[nn.Parameter]:
    room = torch.randn(6, 4, dtype=torch.float64)
    return [nn.Parameter(room[:4]), nn.Parameter(room[2:3]), nn.Parameter(room[3:]), _whole()]


def _whole() -> nn.Parameter:
    return nn.Parameter(torch.randn(4, 4, dtype=torch.float64))


@pytest.mark.parametrize("make", [_with_gaps, _overlapping])
def test_by_default_kernels_step_what_they_can_and_leave_the_rest(
    make: Callable[[], list[nn.Parameter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[torch.Tensor] = []
    for fused in (None, False):
        torch.manual_seed(0)
        weights = make()
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        optimizer = ScaledSGD(weights, lr=0.01, momentum=0.9, fused=fused)
        for _ in range(3):
            optimizer.step()
        found.append(torch.cat([weight.detach().flatten() for weight in weights]))
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)
    taken: list[int] = []
    monkeypatch.setattr(fused_steps, "launcher", lambda _, __, table: taken.append(len(table)))
    with pytest.raises(AttributeError):  # there are no kernels now, where the last weight was to be stepped
        ScaledSGD(weights, lr=0.01).step()
    assert taken == [1]
