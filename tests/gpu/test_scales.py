"""Scales of the full metric on a real device: kernels find those of the reference."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from symoptim import Pooled, SymmetrySpec, discover
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import Moved
from symoptim.symmetry.tensors import model_tensors
from tests.support.metric_gauges import GAUGES, in_every_gauge
from tests.support.zoo import caught, group_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = torch.device("cuda", 0)


def found_by_kernels(metric: FullMetric, tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Squared scales in float64, of the shapes of their tensors: by the first call, and by a replayed one."""
    from symoptim.metric.triton_backend import CudaMetric

    found = CudaMetric(metric, tensors, 2.0, DEVICE, dtype)
    found.refresh(lambda: tensors)
    first = found.buffers.values.clone()
    found.buffers.values.fill_(torch.nan)
    found.refresh(lambda: tensors)
    assert torch.equal(first, found.buffers.values)
    scales: dict[str, Tensor] = {}
    for name, (rows, columns, twice) in found.factors.items():
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
    from symoptim.metric.triton_backend import CudaMetric

    weights = {name: tensor.detach().to(DEVICE) for name, tensor in model_tensors(model).items()}
    found = CudaMetric(metric, weights, 1.0, DEVICE, torch.float32)
    found.refresh(lambda: weights)
    torch.testing.assert_close(found.log_scales[:-1].cpu(), expected, rtol=1e-6, atol=0)
