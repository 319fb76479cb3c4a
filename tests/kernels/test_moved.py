"""Whatever happens to tensors between fused steps is noticed: no step goes by an address that was."""

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, discover

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


def _state_copied(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    buffer = optimizer.state[weight]["momentum_buffer"]
    buffer.data = buffer.data.clone()
    buffer.mul_(2)


def _state_there_and_back(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    buffer = optimizer.state[weight]["momentum_buffer"]
    buffer.data = buffer.data.float()
    buffer.data = buffer.data.double()


def _gradient_transposed(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    assert weight.grad is not None
    weight.grad.t_()


def _gradient_transposed_twice(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    _gradient_transposed(optimizer, weight)
    optimizer.step()
    _gradient_transposed(optimizer, weight)


def _weight_transposed(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    weight.data = weight.data.T


def _state_transposed(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    optimizer.state[weight]["momentum_buffer"].t_()


def _parameter_replaced(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    other = nn.Parameter(weight.detach() * 3)
    other.grad = weight.grad
    optimizer.param_groups[0]["params"][0] = other


def _groups_replaced(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    optimizer.param_groups = [{**group, "lr": 0.0} for group in optimizer.param_groups]


def _shrunk(optimizer: ScaledSGD, weight: nn.Parameter) -> None:
    weight.grad = None
    weight.data = weight.data[:2]
    weight.grad = torch.ones_like(weight)
    optimizer.state[weight]["momentum_buffer"] = torch.ones_like(weight)


@pytest.mark.parametrize(
    "change",
    [
        _state_copied,
        _state_there_and_back,
        _gradient_transposed,
        _gradient_transposed_twice,
        _weight_transposed,
        _state_transposed,
        _parameter_replaced,
        _groups_replaced,
        _shrunk,
    ],
)
def test_changes_between_steps_mean_what_they_mean_without_kernels(
    change: Callable[[ScaledSGD, nn.Parameter], None],
) -> None:
    start, gradient = torch.randn(2, 4, 4, dtype=torch.float64)
    found: list[torch.Tensor] = []
    for fused in (None, False):  # None: gradients that lie otherwise are left to the reference
        room = torch.cat([start.flatten(), torch.full((16,), 7.0, dtype=torch.float64)])
        weight = nn.Parameter(room[:16].view(4, 4))
        weight.grad = gradient.clone()
        optimizer = ScaledSGD([weight], lr=0.01, momentum=0.9, fused=fused)
        optimizer.step()
        assert optimizer._fused is not None
        assert bool(optimizer._fused.stepped) == (fused is None)
        change(optimizer, weight)
        optimizer.step()
        assert room[16:].eq(7).all()
        found.append(torch.cat([room, optimizer.param_groups[0]["params"][0].detach().flatten()]))
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)


def _cut(weight: nn.Parameter) -> None:
    assert weight.grad is not None
    weight.data, weight.grad.data = weight.data[:2], weight.grad.data[:2]


def _viewed(weight: nn.Parameter) -> None:
    assert weight.grad is not None
    weight.data, weight.grad.data = weight.data.view(2, -1), weight.grad.data.view(2, -1)


def _column_to_row(weight: nn.Parameter) -> None:
    weight.grad = None
    weight.data = weight.data[:, :1].T
    weight.square().sum().backward()


def _with_gaps(weight: nn.Parameter) -> None:
    assert weight.grad is not None
    weight.data, weight.grad.data = weight.data[:, ::2], weight.grad.data[:, ::2]


@pytest.mark.parametrize("change", [_cut, _viewed, _column_to_row, _with_gaps])
@pytest.mark.parametrize("shape", [(4, 4), (4, 1), (1, 8)])
def test_tensors_of_other_shapes_at_the_same_address_are_noticed(
    change: Callable[[nn.Parameter], None], shape: tuple[int, int]
) -> None:
    start, gradient = torch.randn(2, *shape, dtype=torch.float64)
    found: list[torch.Tensor] = []
    for fused in (None, False):
        room = start.clone()
        weight = nn.Parameter(room)
        weight.grad = gradient.clone()
        optimizer = ScaledSGD([weight], lr=0.01, fused=fused)
        optimizer.step()
        change(weight)
        optimizer.step()
        found.append(room)
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_vector_with_gaps_at_the_same_address_is_noticed(steps: int) -> None:
    start = torch.randn(8, dtype=torch.float64)
    found: list[torch.Tensor] = []
    for fused in (None, False):
        room = start.clone()
        bias = nn.Parameter(room[:4])
        bias.grad = torch.ones_like(bias)
        optimizer = ScaledSGD([{"params": [bias], "geometry": "plain"}], lr=0.01, fused=fused)
        for _ in range(steps):
            optimizer.step()
        bias.data = room[::2]
        optimizer.step()
        found.append(room)
    assert torch.allclose(*found, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_gradient_without_memory_of_its_own_is_left_to_the_reference(steps: int) -> None:
    results: list[object] = []
    for fused in (None, False):
        weight = nn.Parameter(torch.eye(3))
        weight.grad = torch.ones(3, 3)
        optimizer = ScaledSGD([weight], lr=0.01, fused=fused)
        for _ in range(steps):
            optimizer.step()
        weight.grad = TwoTensor(torch.ones(3, 3), torch.ones(3, 3))
        try:
            optimizer.step()
        except (AssertionError, RuntimeError, TypeError) as error:
            results.append(type(error))
        else:
            results.append(weight.detach().sum().item())
    assert results[0] == results[1]


def test_state_that_is_put_elsewhere_has_its_memory_back_at_once() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD([weight], lr=0.01, momentum=0.9, fused=True)
    optimizer.step()
    state = optimizer.state[weight]
    gone = weakref.ref(state["momentum_buffer"])
    state["momentum_buffer"] = state["momentum_buffer"].clone()
    assert gone() is None


def test_a_compiler_leaves_a_step_to_kernels() -> None:
    found: list[torch.Tensor] = []
    for compiled in (True, False):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(4, 5, dtype=torch.float64))
        optimizer = UnitNormSGD([weight], lr=0.1, momentum=0.9, normalize=True)
        step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        for _ in range(3):
            weight.grad = torch.randn_like(weight)
            step()
        assert optimizer._fused is not None
        assert optimizer._fused.stepped, "not by kernels"
        found.append(weight.detach())
    assert torch.equal(*found)


def test_autograd_notices_that_weights_were_overwritten() -> None:
    weight = nn.Parameter(torch.randn(3, 3))
    loss = (weight @ weight).sum()
    weight.grad = torch.ones_like(weight)
    ScaledSGD([weight], lr=0.01, fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_rows_too_small_to_be_squared_come_back_to_the_sphere() -> None:
    weight = nn.Parameter(torch.randn(4, 30))
    optimizer = UnitNormSGD([weight], lr=0.01, fused=True, normalize=True)
    weight.detach().mul_(1e-22)
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    assert torch.allclose(weight.norm(dim=1), torch.ones(4), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_the_full_metric_reads_sizes_whose_squares_do_not_fit(scale: float) -> None:
    found: list[torch.Tensor] = []
    for factor in (1.0, scale):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
        x = torch.rand(4, 6)
        spec = discover(model, (x,))
        first, last = model.parameters()
        with torch.no_grad():
            first.mul_(factor)
            last.div_(factor)
        model(x).square().mean().backward()
        FullMetricSGD(model, spec, lr=0.01, fused=True).step()
        found.append(torch.cat([(first / factor).flatten(), (last * factor).flatten()]).detach())
    assert torch.allclose(*found, rtol=1e-4, atol=1e-6)


def test_the_full_metric_notices_that_a_frozen_weight_lies_otherwise() -> None:
    found: list[torch.Tensor] = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).double()
        x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
        spec = discover(model, (x,))
        model[0].weight.requires_grad_(False)
        optimizer = FullMetricSGD(model, spec, lr=0.01, fused=fused)
        for memory in (torch.contiguous_format, torch.channels_last):
            model[0].weight.data = model[0].weight.data.contiguous(memory_format=memory)
            model[2].weight.grad = torch.ones_like(model[2].weight)
            optimizer.step()
        found.append(model[2].weight.detach())
    assert torch.allclose(*found, rtol=1e-12)
