"""The full metric on a real device: fused steps are the reference's, captured, followed, never waiting."""

import copy
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from optim.two_points import THOUSAND, TOLERANCE, disagreement
from symmetry.zoo import caught, group_of
from symoptim import FullMetricSGD, Geometric, OwnRow, PathNorm, Pooled, SymmetrySpec, discover
from symoptim.errors import OptionError
from symoptim.metric.full import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import Moved
from symoptim.symmetry.tensors import model_tensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

GAUGES = [Pooled(), OwnRow(), PathNorm(), Geometric()]
in_every_gauge = pytest.mark.parametrize("gauge", GAUGES, ids=lambda gauge: type(gauge).__name__)
DEVICE = torch.device("cuda", 0)


def found_by_kernels(metric: FullMetric, tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Squared scales in float64, of the shapes of their tensors: by the first call, and by a replayed one."""
    from symoptim.metric.cuda.refresh import CudaMetric

    found = CudaMetric(metric, tensors, 2.0, DEVICE, dtype)
    found.refresh(lambda: tensors)
    first = found.all.values.clone()
    found.all.values.fill_(torch.nan)
    found.refresh(lambda: tensors)
    assert torch.equal(first, found.all.values)
    scales: dict[str, Tensor] = {}
    for name, (rows, columns, twice) in found.sides.items():
        scale = rows.double()[:, None] * columns.double()
        like = tensors[name]
        laid = torch.as_strided(scale, like.shape, like.stride())
        scales[name] = laid.square() if twice else laid
    return scales


def assert_scales_are_the_reference(model: nn.Module, spec: SymmetrySpec, gauge: Gauge, dtype: torch.dtype):
    model = copy.deepcopy(model).to(DEVICE, dtype)
    exact = copy.deepcopy(model).double()
    metric = FullMetric.of(spec, model_tensors(model), gauge)
    weights = {name: tensor.detach() for name, tensor in model_tensors(model).items()}
    factors = metric.on(DEVICE, torch.float64).factors(model_tensors(exact), 2.0)
    found = found_by_kernels(metric, weights, dtype)
    assert found
    for name, scale in found.items():
        one, *others = factors[name]
        for other in others:
            one = one * other
        tolerance = 1e-11 if dtype == torch.float64 else 1e-6
        torch.testing.assert_close(scale, one.expand_as(scale), rtol=tolerance, atol=0)


SOME = [
    "arch1",
    "arch2 evaluation",
    "resnet training",
    "llama",
    "grouped and depthwise",
    "nn.Bilinear",
]


@in_every_gauge
@pytest.mark.parametrize("name", SOME)
def test_scales_of_networks_are_the_reference(name: str, gauge: Gauge) -> None:
    spec = group_of(name)
    model = spec.rescale_(copy.deepcopy(caught(name).model), spec.random(seed=4, spread=1.0))
    for dtype in (torch.float64, torch.float32):
        assert_scales_are_the_reference(model, spec, gauge, dtype)


def chain(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def two_layers(inputs: int, units: int, outputs: int) -> tuple[nn.Module, SymmetrySpec]:
    """A network of any size with its symmetries, which are long to find and easy to write down."""
    each = torch.arange(units)
    tensors = {
        "0.weight": Moved((units, inputs), (each[:, None],)),
        "0.bias": Moved((units,), (each,)),
        "2.weight": Moved((outputs, units), (units + each[None],)),
        "2.bias": Moved((outputs,), ()),
    }
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(units)
    exponents = Sparse(torch.arange(2 * units), each.repeat(2), signs)
    names = tuple(map(str, range(units)))
    return chain(inputs, units, outputs), SymmetrySpec(
        tensors, {}, names, 2 * units, exponents, unknown={}, pinned={}, approximate={}
    )


@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1), (7, 300, 7), (2049, 40, 130), (8, 5000, 4104), (1_000_003, 3, 2), (2, 3, 1_000_003)],
)
def test_scales_of_matrices_of_any_shape_are_the_reference(sizes: tuple[int, int, int]) -> None:
    model, spec = two_layers(*sizes)
    for gauge in GAUGES:
        for dtype in (torch.float64, torch.float32):
            assert_scales_are_the_reference(model, spec, gauge, dtype)


def test_a_unit_of_very_many_rows_has_one_size_in_the_same_bits_every_time() -> None:
    model, spec = two_layers(3, 20_000, 2)
    one = spec.exponents._replace(columns=torch.zeros(40_000, dtype=torch.long))
    tied = SymmetrySpec(spec.tensors, {}, ("all",), 40_000, one, unknown={}, pinned={}, approximate={})
    for dtype in (torch.float64, torch.float32):
        assert_scales_are_the_reference(model, tied, Pooled(), dtype)


@in_every_gauge
def test_scales_of_a_chain_are_the_reference(gauge: Gauge) -> None:
    model = chain(7, 300, 7, 64, 2)
    spec = discover(model, (torch.rand(1, 7),))
    for dtype in (torch.float64, torch.float32):
        assert_scales_are_the_reference(model, spec, gauge, dtype)


def test_weights_at_odd_addresses_are_read_and_nothing_beside_them() -> None:
    model = chain(8, 16, 24, 2).to(DEVICE)
    spec = discover(model, (torch.rand(1, 8, device=DEVICE),))
    for parameter in model.parameters():
        room = torch.full((parameter.numel() + 8,), torch.nan, device=DEVICE)
        parameter.data = room[1 : 1 + parameter.numel()].copy_(parameter.flatten()).view_as(parameter)
    metric = FullMetric.of(spec, model_tensors(model), Pooled())
    weights = {name: tensor.detach() for name, tensor in model_tensors(model).items()}
    expected = metric.on(DEVICE, torch.float32).factors(weights, 2.0)
    for name, scale in found_by_kernels(metric, weights, torch.float32).items():
        one, other = expected[name]
        torch.testing.assert_close(scale, (one * other).double().expand_as(scale), rtol=1e-5, atol=0)


@pytest.mark.parametrize("gain", [0.65, 4.5])
def test_deep_networks_have_their_scales_in_float32(gain: float) -> None:
    torch.manual_seed(0)
    model = chain(*[4] * 60, 2)
    spec = discover(model, (torch.rand(2, 4),))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain) if parameter.ndim > 1 else parameter.zero_()
    assert_scales_are_the_reference(model, spec, Pooled(), torch.float32)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_sizes_whose_squares_do_not_fit_are_read(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    spec = discover(model, (torch.rand(4, 6),))
    with torch.no_grad():
        model[0].weight.mul_(scale)
        model[2].weight.div_(scale)
    exact = copy.deepcopy(model).double()
    metric = FullMetric.of(spec, model_tensors(model), Pooled())
    expected = metric.log_scales(model_tensors(exact)).detach()
    from symoptim.metric.cuda.refresh import CudaMetric

    weights = {name: tensor.detach().to(DEVICE) for name, tensor in model_tensors(model).items()}
    found = CudaMetric(metric, weights, 1.0, DEVICE, torch.float32)
    found.refresh(lambda: weights)
    torch.testing.assert_close(found.log_scales[:-1].cpu(), expected, rtol=1e-6, atol=0)


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
