"""Parameters that are looked at late: what has happened to them is noticed, no step is lost or doubled."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim import ScaledSGD
from symoptim.optim import fused as fused_steps

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


def _moved(optimizer: ScaledSGD, late: nn.Parameter) -> None:
    late.data = late.data.clone()


def _without_gradient(optimizer: ScaledSGD, late: nn.Parameter) -> None:
    late.grad = None


def _gradient_elsewhere(optimizer: ScaledSGD, late: nn.Parameter) -> None:
    assert late.grad is not None
    late.grad.data = 2 * late.grad.data


def _gradient_in_other_order(optimizer: ScaledSGD, late: nn.Parameter) -> None:
    assert late.grad is not None
    late.grad = late.grad.T.contiguous().T


@pytest.mark.parametrize("change", [_moved, _without_gradient, _gradient_elsewhere, _gradient_in_other_order])
def test_what_was_moved_late_is_stepped_once_and_found_again(
    change: Callable[[ScaledSGD, nn.Parameter], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_steps, "_parted", lambda entries: (entries[:1], entries[1:]))
    start, gradient = torch.randn(2, 5, 3, dtype=torch.float64)
    found: list[torch.Tensor] = []
    for fused in (False, True):
        both = [nn.Parameter(start.clone()), nn.Parameter(2 * start)]
        for weight in both:
            weight.grad = gradient.clone()
        optimizer = ScaledSGD(both, lr=0.01, momentum=0.9, fused=fused)
        optimizer.step()
        change(optimizer, both[1])
        optimizer.step()
        for weight in both:
            weight.grad = gradient.clone()
        optimizer.step()
        found.append(torch.cat([weight.detach() for weight in both]))
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("moves", [False, True])
def test_autograd_is_told_of_what_is_stepped_late_and_of_what_was_before_it_moved(
    moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_steps, "_parted", lambda entries: (entries[:1], entries[1:]))
    both = [nn.Parameter(torch.randn(5, 3)) for _ in range(2)]
    for weight in both:
        weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD(both, lr=0.01, fused=True)
    optimizer.step()
    if moves:
        both[1].data = both[1].data.clone()
    before = [weight._version for weight in both]
    optimizer.step()
    assert all(weight._version > version for weight, version in zip(both, before, strict=True))
