"""The full metric on a real device: fused steps are the reference's, captured, followed, never waiting."""

import copy
import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from symoptim import FullMetricSGD, SymmetrySpec, discover
from symoptim.errors import OptionError
from symoptim.metric.gauge import Gauge
from tests.support.metric_gauges import in_every_gauge
from tests.support.two_points import THOUSAND, TOLERANCE, disagreement
from tests.support.zoo import caught, group_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = torch.device("cuda", 0)


def losses(
    model: nn.Module,
    arguments: tuple[Tensor, ...],
    optimizer: torch.optim.Optimizer,
    steps: int = 10,
) -> Tensor:
    """Loss before every step, on the device."""
    found: list[Tensor] = []
    for step in range(steps):
        torch.manual_seed(step)
        output = model(*arguments)
        output = output if isinstance(output, Tensor) else output[0]
        target = torch.randn(output.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        loss = mse_loss(output, target.to(output))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).cpu()


def on_device(name: str, far: float) -> tuple[nn.Module, tuple[Tensor, ...], SymmetrySpec]:
    """A network on the device, moved by scales up to ``far``."""
    here, spec = caught(name), group_of(name)
    arguments = tuple(one.to(DEVICE) if isinstance(one, Tensor) else one for one in here.arguments)
    moved = spec.rescale_(copy.deepcopy(here.model), spec.random(seed=4, spread=far))
    return moved.to(DEVICE), arguments, spec


TRAINED = ["arch1", "arch2 training", "resnet training", "gpt, layer norm, gelu", "max pool over features"]
OPTIONS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "capturable": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "momentum", "nesterov, decay, capturable"])
@pytest.mark.parametrize("name", TRAINED)
def test_fused_training_is_the_reference(name: str, options: dict[str, float]) -> None:
    curves: list[Tensor] = []
    for fused in (True, False):
        model, arguments, spec = on_device(name, THOUSAND)
        curves.append(losses(model, arguments, FullMetricSGD(model, spec, lr=3e-3, fused=fused, **options)))
    assert curves[0][-1] < curves[0][0]
    assert disagreement(*curves) < 1e-8


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", TRAINED)
def test_losses_of_two_orbit_points_coincide(name: str, momentum: float) -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, arguments, spec = on_device(name, far)
        optimizer = FullMetricSGD(model, spec, lr=3e-3, momentum=momentum, fused=True)
        curves.append(losses(model, arguments, optimizer))
    assert curves[0][-1] < curves[0][0]
    assert disagreement(*curves) <= TOLERANCE


def a_network(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor, SymmetrySpec]:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 5)).to(DEVICE, dtype)
    x = torch.rand(4, 3, 8, 8, device=DEVICE, dtype=dtype)
    return model, x, discover(model, (x,))


def set_gradients(model: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.grad = torch.empty_like(parameter).copy_(drawn)


@in_every_gauge
def test_after_the_first_two_a_step_allocates_nothing_and_waits_for_nothing(
    gauge: Gauge, no_synchronization: Callable[[], None]
) -> None:
    model, _, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.01, momentum=0.9, gauge=gauge, fused=True)
    set_gradients(model)
    for _ in range(2):
        optimizer.step()
    no_synchronization()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(3):
        optimizer.step()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


@pytest.mark.parametrize("first", ["eager", "captured"])
def test_a_captured_step_reads_the_weights_of_every_replay(first: str) -> None:
    model, _, spec = a_network(torch.float64)
    other = copy.deepcopy(model)
    set_gradients(model)
    set_gradients(other)
    optimizer = FullMetricSGD(model, spec, lr=0.01, fused=True)
    reference = FullMetricSGD(other, spec, lr=0.01, fused=False)
    if first == "eager":
        optimizer.step()
        reference.step()
    torch.cuda.synchronize()
    gc.collect()  # the end of an earlier graph would break the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for _ in range(3):
        graph.replay()
        reference.step()
        optimizer.step()
        reference.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def _moved(model: nn.Module) -> None:
    model[3].weight.data = model[3].weight.data.clone()


def _laid_otherwise(model: nn.Module) -> None:
    model.to(memory_format=torch.channels_last)


def _frozen_moved(model: nn.Module) -> None:
    model[0].weight.data = model[0].weight.data.clone() * 3


def _overwritten(model: nn.Module) -> None:
    model[0].weight.data.mul_(2)


@pytest.mark.parametrize("change", [_moved, _laid_otherwise, _frozen_moved, _overwritten])
def test_whatever_moves_between_steps_is_followed(change: Callable[[nn.Module], None]) -> None:
    found: list[list[Tensor]] = []
    for fused in (True, False):
        model, _, spec = a_network(torch.float64)
        model[0].weight.requires_grad_(change is not _frozen_moved)
        optimizer = FullMetricSGD(model, spec, lr=0.01, momentum=0.9, fused=fused)
        for step in range(5):
            if step in (2, 3):
                change(model)
            set_gradients(model, step)
            if change is _frozen_moved:
                model[0].weight.grad = None
            optimizer.step()
        found.append([parameter.detach() for parameter in model.parameters()])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_a_scaler_is_undone_and_what_is_not_finite_is_skipped() -> None:
    model, _, spec = a_network()
    other = copy.deepcopy(model)
    fused = FullMetricSGD(model, spec, lr=0.01, fused=True)
    reference = FullMetricSGD(other, spec, lr=0.01, fused=False)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    scaler.scale(torch.zeros((), device=DEVICE))
    set_gradients(model)
    set_gradients(other)
    for parameter in model.parameters():
        parameter.grad *= 1024
    scaler.step(fused)
    scaler.update()
    reference.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model[0].weight.grad[0, 0, 0, 0] = torch.inf
    scaler.step(fused)
    scaler.update()
    assert all(map(torch.equal, before, model.parameters()))


def test_short_types_are_refused_by_name_or_stepped_otherwise() -> None:
    model, _, spec = a_network()
    model.to(torch.bfloat16)
    set_gradients(model)
    with pytest.raises(
        OptionError, match=r"'0\.weight' cannot take a fused step: .* no kernel that finds them"
    ):
        FullMetricSGD(model, spec, lr=0.01, fused=True).step()
    FullMetricSGD(model, spec, lr=0.01).step()


def test_steps_do_not_depend_on_the_default_device() -> None:
    found: list[Tensor] = []
    for default in (None, "cuda", "meta"):
        model, _, spec = a_network()
        set_gradients(model)
        torch.set_default_device(default)
        try:
            optimizer = FullMetricSGD(model, spec, lr=0.01, momentum=0.9, fused=True)
            for _ in range(3):
                optimizer.step()
        finally:
            torch.set_default_device(None)
        found.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
