"""Units of weight-normed layers are measured by the lengths of their rows, never by their biases alone."""

import copy
import functools
import math
import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from symoptim import FullMetricSGD, Pooled, SymmetrySpec, discover
from symoptim.errors import UnmeasuredWarning
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.symmetry.tensors import model_tensors
from tests.metric.test_full_metric import assert_scales_move_with_weights, scales
from tests.support.metric_gauges import in_every_gauge


def by_hooks(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():  # torch advises the other one
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


Wrap = Callable[[nn.Module], nn.Module]
Make = Callable[[Wrap], nn.Sequential]
WRAPS: list[Wrap] = [by_hooks, nn.utils.parametrizations.weight_norm]
in_both_styles = pytest.mark.parametrize("normed", WRAPS, ids=["hooks", "parametrizations"])


def perceptron(normed: Wrap) -> nn.Sequential:
    torch.manual_seed(0)
    hidden = [normed(nn.Linear(64, 32)), nn.ReLU(), normed(nn.Linear(32, 32)), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, normed(nn.Linear(32, 10)))


def convolutional(normed: Wrap) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        normed(nn.Conv2d(1, 8, 3, padding=1)),
        nn.ReLU(),
        normed(nn.Conv2d(8, 8, 3, padding=1)),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        normed(nn.Linear(32, 10)),
    )


def images(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.rand(32, 1, 8, 8, generator=draw, dtype=dtype), torch.randint(10, (32,), generator=draw)


@functools.cache
def symmetries(make: Make, normed: Wrap) -> SymmetrySpec:
    return discover(make(normed), images()[:1])


def second_bias(model: nn.Sequential) -> str:
    return [name for name in model_tensors(model) if name.endswith("bias")][1]


def scale_of_second_bias(model: nn.Sequential, spec: SymmetrySpec, gauge: Gauge) -> Tensor:
    metric = FullMetric.of(spec, model_tensors(model), gauge)
    return scales(metric, model)[second_bias(model)]


@in_both_styles
@pytest.mark.parametrize("make", [perceptron, convolutional])
@in_every_gauge
def test_a_bias_does_not_measure_its_unit(gauge: Gauge, make: Make, normed: Wrap) -> None:
    model = make(normed)
    found: list[Tensor] = []
    for factor in (1e-3, 1e-6):
        with torch.no_grad():
            model_tensors(model)[second_bias(model)].mul_(factor)
        found.append(scale_of_second_bias(model, symmetries(make, normed), gauge))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=0)


@in_both_styles
def test_sizes_are_those_of_the_network_without_weight_normalization(normed: Wrap) -> None:
    model = perceptron(normed)
    first, second = [layer for layer in model if isinstance(layer, nn.Linear)][:2]
    u = (first.weight.square().sum(dim=1) + first.bias.square()).mean()
    w = (u * second.weight.square().sum(dim=1) + second.bias.square()).mean()
    expected = w.sqrt().expand(32).detach().double()
    torch.testing.assert_close(
        scale_of_second_bias(model, symmetries(perceptron, normed), Pooled()), expected
    )


class Apart(nn.Module):
    """A bias that is not beside its weight."""

    def __init__(self) -> None:
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm
        self.first, self.second, self.last = (normed(nn.Linear(4, 4)) for _ in range(3))
        self.second.bias = None
        self.bias = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.last((self.second(self.first(x).relu()) + self.bias).relu())


@in_every_gauge
def test_a_bias_in_another_module_waits_for_the_lengths(gauge: Gauge) -> None:
    torch.manual_seed(0)
    model = Apart()
    spec = discover(model, (torch.rand(6, 4),))
    metric = FullMetric.of(spec, model_tensors(model), gauge)
    found = scales(metric, model)["bias"]
    with torch.no_grad():
        model.bias.mul_(1e-3)
    torch.testing.assert_close(scales(metric, model)["bias"], found)


def losses(model: nn.Module, optimizer: Optimizer, data: Sequence[Tensor]) -> Tensor:
    found: list[Tensor] = []
    for _ in range(20):
        loss = cross_entropy(model(data[0]), data[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


@in_both_styles
@pytest.mark.parametrize("make", [perceptron, convolutional])
@in_every_gauge
def test_training_goes_as_it_does_with_sgd(gauge: Gauge, make: Make, normed: Wrap) -> None:
    model, data = make(normed), images()
    with torch.no_grad():
        model_tensors(model)[second_bias(model)].mul_(1e-2)
    spec, other = symmetries(make, normed), make(normed)
    other.load_state_dict(model.state_dict())
    ours = losses(model, FullMetricSGD(model, spec, lr=0.1, gauge=gauge), data)
    theirs = losses(other, SGD(other.parameters(), lr=0.1), data)
    assert theirs[-1] < theirs[0]
    assert ours[-1] < ours[0]
    assert abs(ours[-1] - theirs[-1]) < 0.1


@in_both_styles
@in_every_gauge
def test_losses_from_two_points_of_an_orbit_coincide(gauge: Gauge, normed: Wrap) -> None:
    data = images(torch.float64)
    model = convolutional(normed).double()
    spec = symmetries(convolutional, normed)
    found: list[Tensor] = []
    for spread in (0.0, math.log(1e3)):
        there = convolutional(normed).double()
        there.load_state_dict(model.state_dict())
        spec.rescale_(there, spec.random(seed=4, spread=spread))
        found.append(losses(there, FullMetricSGD(there, spec, lr=0.03, gauge=gauge), data))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=0)


@in_both_styles
@in_every_gauge
def test_kernels_train_as_the_pure_functions_do(gauge: Gauge, normed: Wrap) -> None:
    pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")
    data, spec = images(), symmetries(convolutional, normed)
    found: list[Tensor] = []
    for fused in (False, True):
        model = convolutional(normed)
        found.append(losses(model, FullMetricSGD(model, spec, lr=0.1, gauge=gauge, fused=fused), data))
    torch.testing.assert_close(found[1], found[0])


@in_every_gauge
def test_a_row_that_is_zero_leaves_its_unit_to_what_goes_out(gauge: Gauge) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    spec = discover(model, (torch.rand(6, 3).double(),))
    with torch.no_grad():
        model[0].weight[1] = 0
    before = scales(FullMetric.of(spec, model_tensors(model), gauge), model)["0.bias"]
    assert_scales_move_with_weights(copy.deepcopy(model), spec, gauge)
    with torch.no_grad():
        model[0].bias[1] *= 1e-6
    after = scales(FullMetric.of(spec, model_tensors(model), gauge), model)["0.bias"]
    torch.testing.assert_close(after, before)


@in_every_gauge
def test_what_only_a_bias_is_left_of_is_not_measured(gauge: Gauge) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    spec = discover(model, (torch.rand(6, 3),))
    with torch.no_grad():
        model[2].weight[1], model[4].weight[:, 1] = 0, 0
    with pytest.warns(UnmeasuredWarning, match="1 of the 8 rescalings"):
        optimizer = FullMetricSGD(model, spec, lr=0.1, gauge=gauge)
    found = [factor for factors in optimizer.scales().values() for factor in factors]
    assert all(bool((factor.isfinite() & (factor > 0)).all()) for factor in found)
