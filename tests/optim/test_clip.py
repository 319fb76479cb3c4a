"""Clipping by a length that no rescaling changes."""

import copy
import math
import sys
from collections.abc import Callable
from enum import Enum
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from symoptim import (
    FullMetricSGD,
    ScaledSGD,
    SymmetrySpec,
    UnitNormSGD,
    balance_,
    clip_invariant_norm_,
    invariant,
    param_groups,
)
from symoptim.errors import GeometryWarning, OptionError
from tests.support.two_points import (
    INVARIANT,
    THOUSAND,
    TOLERANCE,
    a_network,
    disagreement,
    losses,
    moved_along,
)


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


class Arguments:
    max_grad_norm = 1.0


def a_trainer(package: str, **attributes: object) -> type:
    """A class that looks like the trainer of a package."""

    def train(self: object, step: Callable[[], object]) -> None:
        step()

    return type("Trainer", (), {"__module__": f"{package}.trainer", "train": train, **attributes})


WITH_CLIPPING = {
    "transformers": a_trainer("transformers", args=Arguments()),
    "lightning": a_trainer("lightning", gradient_clip_val=0.5, gradient_clip_algorithm=None),
    "lightning by value": a_trainer(
        "lightning",
        gradient_clip_val=0.5,
        gradient_clip_algorithm=Enum("Algorithm", {"VALUE": "value"}).VALUE,
    ),
}


@pytest.mark.parametrize("package", WITH_CLIPPING)
@pytest.mark.parametrize("name", ["ScaledSGD", "FullMetricSGD", "AdamW", "AdamW in the full metric"])
def test_a_trainer_that_clips_is_warned_of_once(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, spec = a_network()
    optimizer = {
        "ScaledSGD": lambda: ScaledSGD(param_groups(model), lr=0.03),
        "FullMetricSGD": lambda: FullMetricSGD(model, spec, lr=0.03),
        "AdamW": lambda: invariant(AdamW, param_groups(model), lr=0.03),
        "AdamW in the full metric": lambda: invariant(AdamW, model, spec=spec, lr=0.03),
    }[name]()
    model(*x).square().mean().backward()
    before = copy.deepcopy(model.state_dict())
    trainer = WITH_CLIPPING[package]()
    maker = r"symoptim\.invariant\(\.\.\.\)" if "AdamW" in name else name
    package, _, by_value = package.partition(" ")
    monkeypatch.setitem(sys.modules, package, ModuleType(package))
    how = "entry by entry, by value" if by_value else "by their Euclidean norm"
    with pytest.raises(GeometryWarning, match=rf"the Trainer of {package} clips gradients {how} \("):
        trainer.train(optimizer.step)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    with pytest.warns(GeometryWarning, match=rf"max_norm=\S+ to {maker}"):
        trainer.train(optimizer.step)
    trainer.train(optimizer.step)


@pytest.mark.parametrize(
    "trainer",
    [
        a_trainer("transformers", args=type("Arguments", (), {"max_grad_norm": 0.0})()),
        a_trainer("lightning", gradient_clip_val=None),
        a_trainer("elsewhere", args=Arguments()),
    ],
    ids=["transformers", "lightning", "elsewhere"],
)
def test_a_trainer_that_does_not_clip_is_not_warned_of(trainer: type) -> None:
    model, x, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.03)
    model(*x).square().mean().backward()
    trainer().train(optimizer.step)


def test_at_unit_norm_a_trainer_may_clip() -> None:
    model, x, _ = a_network()
    optimizer = UnitNormSGD(param_groups(balance_(model, tolerance=math.inf)), lr=0.03)
    model(*x).square().mean().backward()
    WITH_CLIPPING["transformers"]().train(optimizer.step)


def test_the_optimizer_inside_a_wrapper_is_clipped() -> None:
    class Wrapper(Optimizer):
        def __init__(self, optimizer: Optimizer) -> None:
            self.optimizer = optimizer

    model, x, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.03)
    model(*x).square().mean().backward()
    length = clip_invariant_norm_(Wrapper(optimizer), 1e-3)
    assert float(length) > 1e-3
    assert float(clip_invariant_norm_(optimizer, 1.0)) == pytest.approx(1e-3)


def test_clipping_to_nothing_where_there_is_nothing_leaves_zeros() -> None:
    model, _, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert float(clip_invariant_norm_(optimizer, 0.0)) == 0.0
    assert all((parameter.grad == 0).all() for parameter in model.parameters())


def test_unit_norm_is_clipped_as_torch_does_it() -> None:
    curves: list[Tensor] = []
    for within in (True, False):
        model = balance_(a_network()[0], tolerance=math.inf)
        optimizer = UnitNormSGD(param_groups(model), lr=0.03, max_norm=0.1 if within else None)
        clip = (
            (lambda _: None) if within else lambda _, m=model: nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        )
        curves.append(losses(model, a_network()[1], optimizer, before_step=clip))
    torch.testing.assert_close(*curves, rtol=1e-5, atol=0)  # torch divides by the norm plus 1e-6


def test_scaled_metric_and_its_chart_can_be_clipped() -> None:
    w = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    w.grad = torch.tensor([[1.0, 0.0]])
    for optimizer in (ScaledSGD([w], lr=0.1), invariant(SGD, [w], lr=0.1)):
        assert float(clip_invariant_norm_(optimizer, 100.0)) == 5.0
    with pytest.raises(OptionError, match=r"^SGD has no scales .* or torch\.nn\.utils\.clip_grad_norm_"):
        clip_invariant_norm_(SGD([w], lr=0.1), 1.0)
    with pytest.raises(OptionError, match="max_norm must be"):
        clip_invariant_norm_(ScaledSGD([w], lr=0.1), -1.0)


MakeClipping = Callable[[nn.Module, SymmetrySpec, float | None], Optimizer]
CLIPPING: dict[str, MakeClipping] = {
    "full": lambda model, spec, longest: FullMetricSGD(model, spec, lr=0.03, max_norm=longest),
    "in full": lambda model, spec, longest: invariant(AdamW, model, spec=spec, lr=0.01, max_norm=longest),
    "scaled": lambda model, _, longest: ScaledSGD(param_groups(model), lr=0.03, max_norm=longest),
    "charted": lambda model, _, longest: invariant(AdamW, param_groups(model), lr=0.01, max_norm=longest),
}


@pytest.mark.parametrize("name", CLIPPING)
def test_max_norm_is_clipping_before_every_step(name: str) -> None:
    curves: list[Tensor] = []
    for within in (True, False):
        model, x, spec = a_network()
        optimizer = CLIPPING[name](model, spec, 0.1 if within else None)
        model, optimizer = copy.deepcopy((model, optimizer))  # which remembers it
        clip = (lambda _: None) if within else (lambda optimizer: clip_invariant_norm_(optimizer, 0.1))
        curves.append(losses(model, x, optimizer, before_step=clip))
    assert torch.equal(*curves)
    model, x, spec = a_network()
    assert not torch.equal(losses(model, x, CLIPPING[name](model, spec, None)), curves[0])


def test_max_norm_clips_gradients_that_a_closure_takes() -> None:
    w = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = ScaledSGD([w], lr=0.1, max_norm=1.0)

    def closure() -> Tensor:
        loss = w[0, 0]
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(w, torch.tensor([[3.0 - 0.1 * 25 * 0.2, 4.0]]))


def test_the_length_is_that_of_the_gradient_before_a_scaler_has_multiplied_it() -> None:
    w = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = ScaledSGD([w], lr=0.1)
    w.grad = torch.tensor([[64.0, 0.0]])
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(64.0), torch.tensor(0.0)
    assert float(clip_invariant_norm_(optimizer, 1.0)) == 5.0
    torch.testing.assert_close(w.grad, torch.tensor([[64.0 / 5, 0.0]]))


@pytest.mark.parametrize("max_norm", [-1.0, float("nan"), "1"])
def test_a_max_norm_that_is_no_length_is_refused(max_norm: object) -> None:
    model, _, spec = a_network()
    for make in CLIPPING.values():
        with pytest.raises(OptionError, match="max_norm must be a finite number >= 0, got"):
            make(model, spec, max_norm)


class ZeroRedundancyOptimizer:
    """Makes an optimizer of a part of the parameters, as torch's does in each process."""

    def __init__(self, weights: list[nn.Parameter], max_norm: float | None) -> None:
        self.optim = ScaledSGD(weights[:1], lr=0.1, max_norm=max_norm)


def test_a_part_of_the_gradients_is_not_clipped_by_its_own_length() -> None:
    weights = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))]
    ZeroRedundancyOptimizer(weights, None)
    with pytest.raises(OptionError, match="each would clip by the length of its own"):
        ZeroRedundancyOptimizer(weights, 1.0)


def test_a_gradient_that_is_divided_by_the_scale_of_the_loss_is_clipped() -> None:
    ends: list[Tensor] = []
    for scale in (1.0, 8.0):
        weight = nn.Parameter(torch.eye(3)[:2] + 1)
        optimizer = ScaledSGD([weight], lr=0.1, max_norm=0.5, fused=False)
        weight.grad = scale * torch.arange(6.0).view(2, 3)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(scale), torch.tensor(0.0)
        optimizer.step()
        ends.append(weight.detach())
    torch.testing.assert_close(*ends)
    plain = ScaledSGD([weight := nn.Parameter(torch.eye(3)[:2] + 1)], lr=0.1, max_norm=0.5, fused=False)
    weight.grad = torch.arange(6.0).view(2, 3)
    plain.step()
    torch.testing.assert_close(weight.detach(), ends[0])


@pytest.mark.parametrize("fused", [None, False])
def test_a_gradient_in_the_memory_of_a_weight_is_clipped_once(fused: bool | None) -> None:
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = ScaledSGD([weight], lr=0.01, max_norm=2.5, fused=fused)
    weight.grad = weight.detach()  # of length 5 * 5 in the scaled metric
    optimizer.step()
    clipped = torch.tensor([[0.3, 0.4]])  # in place, as everywhere: the weight with it
    torch.testing.assert_close(weight.detach(), clipped - 0.01 * 0.25 * clipped)
