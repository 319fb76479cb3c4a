"""Fused steps mean what the pure ones mean: with tensor rates, shared memory, filters of one entry."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, discover
from symoptim.routing import axes_of
from symoptim.updates.step import StepOptions, step

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")

WAYS: dict[str, dict[str, Any]] = {
    "kernels": {"fused": True},
    "loop": {"fused": False, "foreach": False},
    "stacked": {"fused": False, "foreach": True},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_rate_is_the_number_it_holds(way: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rate = torch.full(shape, 0.1, dtype=dtype)
    start, gradient = torch.randn(2, 5, 3, dtype=torch.float64)
    found: list[Tensor] = []
    for lr in (rate, float(rate)):
        weight = nn.Parameter(start.clone())
        weight.grad = gradient.clone()
        optimizer = ScaledSGD([weight], lr=lr, momentum=0.9, weight_decay=0.1, **WAYS[way])
        for _ in range(2):
            optimizer.step()
        found.append(weight.detach())
    torch.testing.assert_close(*found, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("fused", [True, False])
def test_a_tensor_rate_is_the_number_it_holds_in_the_full_metric(fused: bool) -> None:
    found: list[Tensor] = []
    for lr in (torch.tensor(0.1), float(torch.tensor(0.1))):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double()
        x = torch.rand(3, 4, dtype=torch.float64)
        spec = discover(model, (x,))
        optimizer = FullMetricSGD(model, spec, lr=lr, momentum=0.9, weight_decay=0.1, fused=fused)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        found.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-13, atol=1e-13)


def _its_own(weights: list[nn.Parameter]) -> list[Tensor]:
    return [weight.data for weight in weights]


def _each_others(weights: list[nn.Parameter]) -> list[Tensor]:
    return [weight.data for weight in reversed(weights)]


def _shifted(weights: list[nn.Parameter]) -> list[Tensor]:
    """Gradients that begin in the middle of a parameter; both are in one piece of memory."""
    first, size = weights[0].data, weights[0].numel()
    return [first.as_strided(weight.shape, weight.stride(), size // 2) for weight in weights]


@pytest.mark.parametrize("alias", [_its_own, _each_others, _shifted])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("geometry", ["rows", "columns", "plain"])
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:UnitNormSGD:symoptim.errors.GeometryWarning")
def test_gradients_that_share_memory_with_weights_are_read_before_these_are_written(
    way: str,
    kind: type[ScaledSGD] | type[UnitNormSGD],
    geometry: str,
    momentum: float,
    alias: Callable[[list[nn.Parameter]], list[Tensor]],
) -> None:
    room = torch.randn(2, 40, 30, dtype=torch.float64) / 30**0.5
    weights = [nn.Parameter(half) for half in room]
    groups = [{"params": weights, "geometry": geometry}]
    optimizer = kind(groups, lr=0.01, momentum=momentum, **WAYS[way])
    update = optimizer.updates[geometry]  # pyright: ignore[reportArgumentType]
    over, options = axes_of(geometry, 0, 2), StepOptions(lr=0.01, momentum=momentum)  # pyright: ignore
    expected = [(weight.detach().clone(), None) for weight in weights]
    for number in range(3):
        # Ordinary ones at first, so that it has to be noticed when that changes.
        ordinary = [torch.randn(40, 30, dtype=torch.float64) for _ in weights]
        gradients = alias(weights) if number else ordinary
        read = [gradient.clone() for gradient in gradients]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimizer.step()
        expected = [
            tuple(step(update, w, g, options, buffer=b, over=over))
            for (w, b), g in zip(expected, read, strict=True)
        ]
        for weight, (value, _) in zip(weights, expected, strict=True):
            torch.testing.assert_close(weight.detach(), value, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [1.0, 1e10, 1e17, 1e30, 1e150])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shape", [(50, 1), (50, 1, 1, 1)])
@pytest.mark.parametrize("way", WAYS)
def test_unit_norm_filters_of_one_entry_stay_where_they_are(
    way: str, shape: tuple[int, ...], momentum: float, size: float
) -> None:
    start = torch.randn(shape, dtype=torch.float64).sign()
    weight = nn.Parameter(start * (1 + 2e-16 * torch.randn(shape, dtype=torch.float64)))
    optimizer = UnitNormSGD([weight], lr=0.1, momentum=momentum, **WAYS[way])
    for _ in range(3):
        weight.grad = size * torch.randn(shape, dtype=torch.float64)
        optimizer.step()
        assert torch.allclose(weight, start, rtol=0, atol=1e-15)
    if momentum:
        assert not optimizer.state[weight]["momentum_buffer"].any()


@pytest.mark.parametrize("way", WAYS)
def test_a_rate_between_two_steps_of_filters_of_one_entry_is_that_of_the_others(way: str) -> None:
    weights = [nn.Parameter(torch.ones(2, 1)), nn.Parameter(torch.ones(2, 2) / 2**0.5)]
    optimizer = UnitNormSGD(weights, lr=0.0, **WAYS[way])
    for lr in (0.0, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
            weight.grad[:, 0] = 1.0
        before = weights[1].detach().clone()
        optimizer.step()
        assert weights[0].eq(1).all()
        assert torch.allclose(before, weights[1], atol=1e-6) == (lr == 0)
