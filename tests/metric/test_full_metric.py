"""The full metric: its scales move with the weights, on every network and in every gauge."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from symoptim import Geometric, OwnRow, PathNorm, Pooled, SymmetrySpec, discover
from symoptim.metric.full_metric import FullMetric
from symoptim.metric.gauge import Gauge
from symoptim.symmetry.tensors import model_tensors
from tests.support.metric_gauges import GAUGES, in_every_gauge
from tests.support.zoo import ZOO, caught, group_of

THOUSAND = math.log(1e3)


def scales(metric: FullMetric, model: nn.Module) -> dict[str, Tensor]:
    """Scales of all tensors that move, of their full shapes."""
    tensors = {name: tensor.detach() for name, tensor in model_tensors(model).items()}
    return {
        name: math.prod(factors, start=torch.ones_like(tensors[name]))
        for name, factors in metric.factors(tensors).items()
    }


def assert_scales_move_with_weights(model: nn.Module, spec: SymmetrySpec, gauge: Gauge) -> None:
    element = spec.random(seed=4, spread=THOUSAND)
    moved = spec.rescale_(copy.deepcopy(model), element)
    metric = FullMetric.of(spec, model_tensors(model), gauge)
    here = scales(metric, model)
    there = scales(FullMetric.of(spec, model_tensors(moved), gauge), moved)
    dead = _unmeasured(metric)
    for name, log_scale in spec.log_scales(torch.where(dead, 0.0, element), here).items():
        ratio = (there[name] / here[name]).log()
        torch.testing.assert_close(ratio, log_scale.broadcast_to(ratio.shape), rtol=0, atol=1e-9)


def _unmeasured(metric: FullMetric) -> Tensor:
    """Generators that no plan measures; all they move is zero."""
    exponents = metric.layout.exponents
    dead = torch.ones(metric.layout.generators, dtype=torch.bool)
    dead[exponents.columns[metric.alive[exponents.rows]]] = False
    for plan in metric.plans.values():
        measured = torch.cat([torch.arange(0), *(level.generators for level in plan.levels)])
        assert len(measured) == len(measured.unique())
        assert not dead[measured].any()
        assert len(measured) == int((~dead).sum())
    return dead


SOME = [
    "arch1",
    "arch2 training",
    "arch2 evaluation",
    "max pool over features",
    "tied autoencoder",
    "low-rank adaptation",
    "grouped and depthwise",
    "attention, fused",
    "gpt, layer norm, gelu",
    "llama",
    "relu rnn",
    "soft experts",
    "lstm",
]


@pytest.mark.parametrize(
    "name", [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in ZOO if name not in SOME)]
)
def test_scales_move_with_the_weights(name: str) -> None:
    for gauge in GAUGES:
        assert_scales_move_with_weights(caught(name).model, group_of(name), gauge)


def a_network(*, biases: bool = True) -> tuple[nn.Module, SymmetrySpec]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4, bias=biases),
        nn.ReLU(),
        nn.Linear(4, 5, bias=biases),
        nn.ReLU(),
        nn.Linear(5, 2, bias=biases),
    ).double()
    return model, discover(model, (torch.rand(6, 3).double(),))


def test_sizes_are_path_norms() -> None:
    model, spec = a_network(biases=False)
    first, second, last = (parameter.detach() for parameter in model.parameters())
    u = first.norm(dim=1)
    w = (second * u).norm(dim=1)
    found = scales(FullMetric.of(spec, model_tensors(model), Pooled()), model)
    torch.testing.assert_close(found["0.weight"], u[:, None].expand_as(first))
    torch.testing.assert_close(found["2.weight"], w[:, None] / u)
    torch.testing.assert_close(found["4.weight"], (1 / w).expand_as(last))


def test_sizes_of_path_sgd_and_geometric_are_their_formulas() -> None:
    model, spec = a_network(biases=False)
    first, second, last = (parameter.detach() for parameter in model.parameters())
    u1 = first.norm(dim=1)
    u2 = (second * u1).norm(dim=1)
    out2 = last.norm(dim=0)
    out1 = (second * out2[:, None]).norm(dim=0)
    path = scales(FullMetric.of(spec, model_tensors(model), PathNorm()), model)
    torch.testing.assert_close(path["2.weight"], 1 / (u1 * out2[:, None]))
    torch.testing.assert_close(path["0.weight"], (1 / out1)[:, None].expand_as(first))
    geometric = scales(FullMetric.of(spec, model_tensors(model), Geometric()), model)
    torch.testing.assert_close(geometric["2.weight"].square(), (u2 / out2)[:, None] / u1.square())


def test_biases_belong_to_the_size_of_their_row() -> None:
    model, spec = a_network()
    weight, bias = model[0].weight.detach(), model[0].bias.detach()
    found = scales(FullMetric.of(spec, model_tensors(model), Pooled()), model)
    torch.testing.assert_close(found["0.bias"], (weight.square().sum(dim=1) + bias.square()).sqrt())


class Pairs(nn.Module):
    """Two filters of a max-pool pair have one scale."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 4, bias=False)
        self.head = nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x).relu().reshape(-1, 2, 2).amax(dim=2))


def test_rows_that_scale_together_have_their_root_mean_square_or_each_its_own() -> None:
    torch.manual_seed(0)
    model = Pairs().double()
    spec = discover(model, (torch.rand(6, 3).double(),))
    norms = model.hidden.weight.detach().norm(dim=1)
    pooled = norms.reshape(2, 2).square().mean(dim=1).sqrt()
    found = scales(FullMetric.of(spec, model_tensors(model), Pooled()), model)
    torch.testing.assert_close(found["hidden.weight"][:, 0], pooled.repeat_interleave(2))
    own = scales(FullMetric.of(spec, model_tensors(model), OwnRow()), model)
    torch.testing.assert_close(own["hidden.weight"][:, 0], norms)
    torch.testing.assert_close(own["head.weight"], found["head.weight"])


class Branch(nn.Module):
    """A residual branch whose last layer starts at zero, as many do."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 6), nn.Linear(6, 4)
        self.head = nn.Linear(4, 2)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor) -> Tensor:
        stream = self.stem(x).relu()
        return self.head(stream + self.down(self.up(stream).relu()))


@in_every_gauge
def test_a_branch_that_is_zero_moves_along(gauge: Gauge) -> None:
    torch.manual_seed(0)
    model = Branch().double()
    spec = discover(model, (torch.rand(6, 3).double(),))
    found = scales(FullMetric.of(spec, model_tensors(model), gauge), model)
    assert all(scale.isfinite().all() and (scale > 0).all() for scale in found.values())
    assert_scales_move_with_weights(model, spec, gauge)


def test_a_branch_that_is_zero_takes_the_size_of_its_stream() -> None:
    torch.manual_seed(0)
    model = Branch().double()
    spec = discover(model, (torch.rand(6, 3).double(),))
    found = scales(FullMetric.of(spec, model_tensors(model), Pooled()), model)
    stream = (model.stem.weight.square().sum(dim=1) + model.stem.bias.square()).sqrt().detach()
    torch.testing.assert_close(found["down.bias"], stream)


@in_every_gauge
def test_a_unit_with_nothing_coming_in_is_measured_by_what_goes_out(gauge: Gauge) -> None:
    model, spec = a_network()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    assert_scales_move_with_weights(model, spec, gauge)


def test_which_blocks_are_zero_is_remembered() -> None:
    model, spec = a_network()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    metric = FullMetric.of(spec, model_tensors(model), Pooled())
    with torch.no_grad():
        model[0].weight.fill_(1e-6)  # it has left zero, and is not worth measuring by yet
    kept = scales(FullMetric.of(spec, model_tensors(model), Pooled(), metric.alive), model)
    for name, scale in scales(metric, model).items():
        torch.testing.assert_close(scale, kept[name], rtol=0, atol=0)
    fresh = scales(FullMetric.of(spec, model_tensors(model), Pooled()), model)
    assert not torch.allclose(fresh["0.weight"], kept["0.weight"])


def test_a_pruned_unit_keeps_nobody_waiting() -> None:
    model, spec = a_network()
    with torch.no_grad():
        for layer, following in ((model[0], model[2]), (model[2], model[4])):
            layer.weight[0], layer.bias[0], following.weight[:, 0] = 0, 0, 0
    metric = FullMetric.of(spec, model_tensors(model), Pooled())
    read = [{reading.tensor for reading in level.readings} for level in metric.plans[1].levels]
    assert read == [{"0.weight", "0.bias"}, {"2.weight", "2.bias"}]
    for gauge in GAUGES:
        assert_scales_move_with_weights(model, spec, gauge)


def test_a_row_that_has_left_zero_still_takes_the_mean() -> None:
    torch.manual_seed(0)
    model = Pairs().double()
    spec = discover(model, (torch.rand(6, 3).double(),))
    with torch.no_grad():
        model.hidden.weight[0] = 0
    metric = FullMetric.of(spec, model_tensors(model), OwnRow())
    with torch.no_grad():
        model.hidden.weight[0] = 1e-3
    found = scales(metric, model)["hidden.weight"][:, 0]
    torch.testing.assert_close(found[0], model.hidden.weight[1].detach().norm(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("gain", [0.65, 4.5])
def test_deep_networks_have_their_scales_in_float32(gain: float) -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(60) for part in (nn.Linear(4, 4, bias=False), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(4, 2, bias=False)).double()
    spec = discover(model, (torch.rand(2, 4).double(),))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    metric = FullMetric.of(spec, model_tensors(model), Pooled())
    exact = scales(metric, model)
    last = exact["120.weight"]
    assert (last.square() > torch.finfo(torch.float32).max).all() or (last.square().float() == 0).all()
    rough = scales(metric.on(torch.device("cpu"), torch.float32), model.float())
    for name, scale in rough.items():
        torch.testing.assert_close(scale.double(), exact[name], rtol=1e-3, atol=0)
    # Squares are applied as factors that fit, one after another.
    tensors = {name: tensor.detach() for name, tensor in model_tensors(model).items()}
    squares = metric.on(torch.device("cpu"), torch.float32).factors(tensors, 2.0)
    assert all((f.isfinite() & (f > 0)).all() for factors in squares.values() for f in factors)


def test_a_weight_that_is_no_number_is_not_hidden() -> None:
    model, spec = a_network()
    metric = FullMetric.of(spec, model_tensors(model), Pooled())
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    assert scales(metric, model)["0.weight"][0].isnan().all()


def test_in_float32_the_scales_are_those_of_float64() -> None:
    model, spec = a_network()
    metric = FullMetric.of(spec, model_tensors(model), Geometric())
    exact = scales(metric, model)
    rough = scales(metric.on(torch.device("cpu"), torch.float32), model.float())
    for name, scale in rough.items():
        assert scale.dtype == torch.float32
        torch.testing.assert_close(scale.double(), exact[name], rtol=1e-5, atol=0)
