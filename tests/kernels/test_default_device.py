"""Fused steps are the same whatever device new tensors are put on by default."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim import FullMetricSGD, Geometric, ScaledSGD, SymmetrySpec, UnitNormSGD, discover, param_groups

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")

Make = Callable[[nn.Module, SymmetrySpec], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "scaled": lambda model, _: ScaledSGD(param_groups(model), lr=0.01, momentum=0.9, fused=True),
    "unit-norm": lambda model, _: UnitNormSGD(
        param_groups(model), lr=0.01, momentum=0.9, fused=True, normalize=True
    ),
    "full": lambda model, spec: FullMetricSGD(model, spec, lr=0.01, momentum=0.9, fused=True),
    "geometric": lambda model, spec: FullMetricSGD(model, spec, lr=0.01, gauge=Geometric(), fused=True),
}


@pytest.fixture
def meta_by_default() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def a_network() -> tuple[nn.Module, SymmetrySpec]:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2)]
    model = nn.Sequential(*layers)
    return model, discover(model, (torch.rand(2, 3, 6, 6),))


def stepped(make: Make, model: nn.Module, spec: SymmetrySpec) -> list[Tensor]:
    optimizer = make(model, spec)
    for factor in (1.0, -0.5):
        for parameter in model.parameters():
            parameter.grad = factor * torch.ones_like(parameter)
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.fixture
def networks() -> tuple[tuple[nn.Module, SymmetrySpec], ...]:
    return a_network(), a_network()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_do_not_depend_on_the_default_device(
    name: str, networks: tuple[tuple[nn.Module, SymmetrySpec], ...], request: pytest.FixtureRequest
) -> None:
    one, other = networks
    expected = stepped(OPTIMIZERS[name], *one)
    request.getfixturevalue("meta_by_default")
    found = stepped(OPTIMIZERS[name], *other)
    assert all(tensor.device.type == "cpu" for tensor in found)
    assert all(map(torch.equal, found, expected))
