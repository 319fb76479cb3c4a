"""What holds of ScaledSGD and UnitNormSGD beyond the battery: known limits, precision, rivals."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import geoopt
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import symoptim
from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, invariant
from symoptim.errors import GradientError, OptionError, ZeroFilterWarning
from symoptim.geometry.unit_norm import normalize
from symoptim.optim.base import GeometricSGD
from symoptim.updates.catalog import SCALED, UNIT_NORM
from symoptim.updates.step import StepOptions, step

# Weights are drawn at random and normalized on purpose where the optimizer is UnitNormSGD.
pytestmark = pytest.mark.filterwarnings("ignore:UnitNormSGD divides rows:symoptim.errors.GeometryWarning")

OPTIONS = [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"maximize": True}]


def gradients(steps: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(steps, *shape, generator=torch.Generator().manual_seed(7), dtype=dtype)


def train(optimizer: torch.optim.Optimizer, weight: Tensor, grads: Tensor) -> None:
    for g in grads:
        weight.grad = g.clone()
        optimizer.step()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_plain_groups_are_torchs_sgd(kind: type[GeometricSGD], options: dict[str, float]) -> None:
    ours, theirs = nn.Parameter(torch.randn(5, 3, dtype=torch.float64)), nn.Parameter(torch.empty(0))
    theirs.data = ours.data.clone()
    grads = gradients(20, 5, 3)
    train(kind([{"params": ours, "geometry": "plain"}], lr=0.1, **options), ours, grads)
    train(SGD([theirs], lr=0.1, **options), theirs, grads)
    torch.testing.assert_close(ours, theirs)


def test_columns_of_unit_norm_sgd_are_plain_as_in_the_paper() -> None:
    ours, theirs = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.empty(0))
    theirs.data = ours.data.clone()
    train(UnitNormSGD([{"params": ours, "geometry": "columns"}], lr=0.1), ours, gradients(5, 5, 3).float())
    train(SGD([theirs], lr=0.1), theirs, gradients(5, 5, 3).float())
    torch.testing.assert_close(ours, theirs)


def test_unit_norm_sgd_agrees_with_geoopt_on_the_sphere() -> None:
    start = normalize(torch.randn(6, 5, dtype=torch.float64))
    ours = nn.Parameter(start.clone())
    theirs = geoopt.ManifoldParameter(start.clone(), manifold=geoopt.Sphere())
    grads = gradients(100, 6, 5)
    train(UnitNormSGD([ours], lr=0.1), ours, grads)
    train(geoopt.optim.RiemannianSGD([theirs], lr=0.1), theirs, grads)
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("fused", [False, None])
def test_first_momentum_step_equals_the_momentum_free_one_where_geoopts_is_longer(fused: bool | None) -> None:
    start = normalize(torch.randn(6, 5, dtype=torch.float64))
    grads = gradients(1, 6, 5)

    def moved(make: Callable[[Tensor], torch.optim.Optimizer], weight: Tensor) -> Tensor:
        train(make(weight), weight, grads)
        return weight.detach()

    plain = moved(lambda w: UnitNormSGD([w], lr=0.01, fused=fused), nn.Parameter(start.clone()))
    ours = moved(lambda w: UnitNormSGD([w], lr=0.01, momentum=0.9, fused=fused), nn.Parameter(start.clone()))
    theirs = moved(
        lambda w: geoopt.optim.RiemannianSGD([w], lr=0.01, momentum=0.9),
        geoopt.ManifoldParameter(start.clone(), manifold=geoopt.Sphere()),
    )
    assert torch.equal(ours, plain) if fused is False else torch.allclose(ours, plain, rtol=0, atol=1e-15)
    assert (theirs - start).norm() > 1.8 * (plain - start).norm()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rows_keep_unit_norm_over_ten_thousand_float32_steps(momentum: float) -> None:
    weight = nn.Parameter(torch.randn(16, 300))
    lr = 0.1 if not momentum else 0.01
    optimizer = UnitNormSGD([weight], lr=lr, momentum=momentum)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10_000):
        weight.grad = normalize(torch.randn(16, 300, generator=generator)) * 10  # lr |g| = 1
        optimizer.step()
    assert (weight.double().norm(dim=1) - 1).abs().max() <= 1e-6


def test_rows_stay_finite_and_of_unit_norm_at_enormous_rates() -> None:
    weight = nn.Parameter(torch.randn(16, 300))
    optimizer = UnitNormSGD([weight], lr=100.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(1000):
        weight.grad = normalize(torch.randn(16, 300, generator=generator)) * 10  # lr |g| = 1000
        optimizer.step()
    assert weight.isfinite().all()
    assert (weight.double().norm(dim=1) - 1).abs().max() <= 1e-5


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_master_copies_follow_the_float32_path(
    kind: type[GeometricSGD], dtype: torch.dtype, foreach: bool, options: dict[str, float]
) -> None:
    start = normalize(torch.randn(2, 8, 50)).to(dtype)
    short = [nn.Parameter(w.clone()) for w in start]
    full = [nn.Parameter(w.float()) for w in start]
    grads = gradients(1000, 8, 50, dtype=torch.float32).to(dtype)
    for params in (short, full):
        optimizer = kind(params, lr=1e-4, foreach=foreach, **options)
        for g in grads:
            for p in params:
                p.grad = g.to(p.dtype)
            optimizer.step()
    for a, b in zip(short, full, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), b, rtol=torch.finfo(dtype).eps, atol=1e-4)


def test_without_master_copies_small_steps_are_lost() -> None:
    """The test above can fail: the same steps taken in bfloat16 go elsewhere."""
    start = normalize(torch.randn(8, 50)).bfloat16()
    grads = torch.full((1000, 8, 50), 1.0)
    master = nn.Parameter(start.clone())
    train(ScaledSGD([master], lr=1e-4), master, grads.bfloat16())
    full, short = nn.Parameter(start.float()), start.clone()
    train(ScaledSGD([full], lr=1e-4), full, grads)
    for g in grads.bfloat16():
        short = step(SCALED, short, g, StepOptions(lr=1e-4)).weights
    assert (short - full).abs().mean() > 20 * (master - full).abs().mean()


def test_a_parameter_changed_from_outside_wins_over_its_master_copy() -> None:
    weight = nn.Parameter(torch.randn(4, 3).bfloat16())
    optimizer = ScaledSGD([weight], lr=0.1)
    train(optimizer, weight, gradients(3, 4, 3).bfloat16())
    with torch.no_grad():
        weight[1] = torch.tensor([1.0, 2.0, 3.0])
    train(optimizer, weight, torch.zeros(1, 4, 3).bfloat16())
    assert weight[1].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_short_state_survives_a_round_trip_bit_for_bit(kind: type[GeometricSGD]) -> None:
    weight = nn.Parameter(torch.randn(4, 3).bfloat16())
    optimizer = kind([weight], lr=0.01, momentum=0.9)
    train(optimizer, weight, gradients(3, 4, 3).bfloat16())
    other = nn.Parameter(weight.detach().clone())
    resumed = kind([other], lr=0.01, momentum=0.9)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(optimizer, weight, gradients(5, 4, 3).bfloat16())
    train(resumed, other, gradients(5, 4, 3).bfloat16())
    assert torch.equal(optimizer.state[weight]["master"], resumed.state[other]["master"])
    assert torch.equal(weight, other)


def test_rows_are_normalized_when_added_and_unit_rows_left_alone() -> None:
    unit = normalize(torch.randn(5, 7))
    loose, tight, frozen = (nn.Parameter(w) for w in (3 * unit, unit.clone(), 3 * unit))
    frozen.requires_grad_(False)
    optimizer = UnitNormSGD([loose], lr=0.1)
    optimizer.add_param_group({"params": [tight, frozen]})
    torch.testing.assert_close(loose.detach(), unit)
    assert torch.equal(tight, unit)
    assert torch.equal(frozen, 3 * unit)


@pytest.mark.parametrize(
    "copied", [lambda one: one, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_refused_step_of_thawed_rows_is_refused_again(copied: Callable[[Optimizer], Optimizer]) -> None:
    weights = [nn.Parameter(normalize(torch.randn(4, 6))), nn.Parameter(3 * torch.ones(4, 6))]
    weights[1].requires_grad_(False)
    optimizer = copied(UnitNormSGD(weights, lr=0.1, normalize=False))
    weights = optimizer.param_groups[0]["params"]
    weights[1].requires_grad_(True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    before = [weight.detach().clone() for weight in weights]
    for _ in range(2):
        with pytest.raises(OptionError, match="normalize=False, and rows are not of unit norm"):
            optimizer.step()
        assert all(map(torch.equal, weights, before))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("how", ["frozen", "loaded"])
def test_rows_that_are_not_of_unit_norm_are_normalized_before_they_are_stepped(
    how: str, dtype: torch.dtype
) -> None:
    unit, g = normalize(torch.randn(4, 6, dtype=torch.float64)), torch.randn(4, 6, dtype=torch.float64)
    start = 100 * unit if how == "loaded" else 3 * unit
    weight = nn.Parameter(start.to(dtype), requires_grad=how == "loaded")
    optimizer = UnitNormSGD([weight], lr=0.1)
    with torch.no_grad():
        weight.copy_(start).requires_grad_()
    train(optimizer, weight, g[None].to(dtype))
    expected = step(UNIT_NORM, unit, g, StepOptions(lr=0.1)).weights
    tolerance = 1e-12 if dtype is torch.float64 else 2e-2
    torch.testing.assert_close(weight.detach().double(), expected, rtol=0, atol=tolerance)


def test_a_differentiable_step_refuses_leaves_and_changes_nothing() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = ScaledSGD([("w", weight)], lr=0.1, momentum=0.9, differentiable=True)
    weight.grad = torch.ones(2, 2)
    with pytest.raises(GradientError, match=r"parameter 'w' is a leaf .*parameter.clone\(\)"):
        optimizer.step()
    assert not optimizer.state
    assert torch.equal(weight, torch.ones(2, 2))


def stepped_differentiably(start: Tensor, momentum: float) -> Tensor:
    """Weights after two steps on a quadratic, a function of what they were before the optimizer was made."""
    target = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 2.0]], dtype=torch.float64)
    weight = start.clone()
    optimizer = UnitNormSGD([weight], lr=0.1, momentum=momentum, differentiable=True, normalize=True)
    for _ in range(2):
        weight.grad = weight - target
        optimizer.step()
    return weight


def test_the_first_normalization_is_part_of_the_graph_of_a_differentiable_step() -> None:
    start = torch.tensor([[3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    weight = start.clone()
    UnitNormSGD([weight], lr=0.1, differentiable=True, normalize=True)
    weight[0, 0].backward()
    torch.testing.assert_close(start.grad, torch.tensor([[0.128, -0.096]], dtype=torch.float64))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_meta_gradients_are_those_of_finite_differences(scale: float, momentum: float) -> None:
    unit = normalize(torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    start = (scale * unit).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: stepped_differentiably(w, momentum).square().cumsum(1), start)


@pytest.mark.parametrize("make", [ScaledSGD, lambda params: invariant(torch.optim.AdamW, params)])
def test_zero_filters_are_warned_of_once_for_a_group(make: Callable[..., Optimizer]) -> None:
    weights = [(f"w{number}", nn.Parameter(torch.eye(2) * (number == 0))) for number in range(40)]
    weights[0][1].data[1] = 0
    with pytest.warns(ZeroFilterWarning) as seen:
        make(weights)
    assert len(seen) == 1
    assert "parameter 'w0' and 39 more of its group have rows without a direction (1;" in str(seen[0].message)
    assert "'w3', parameter 'w4' and 35 more will not learn at all" in str(seen[0].message)


def test_scaled_sgd_warns_of_zero_filters_and_leaves_them_alone() -> None:
    weight = nn.Parameter(torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    with pytest.warns(
        ZeroFilterWarning, match=r"parameter 'w' has rows without a direction \(0; zero"
    ) as seen:
        optimizer = ScaledSGD([("w", weight)], lr=0.1)
    assert seen[0].filename == __file__
    train(optimizer, weight, torch.ones(3, 2, 2))
    assert weight[0].tolist() == [0.0, 0.0]
    assert weight.isfinite().all()


def test_zero_columns_are_named_by_their_column() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    with pytest.warns(ZeroFilterWarning, match=r"has columns without a direction \(1; zero"):
        ScaledSGD([{"params": weight, "geometry": "columns"}])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_empty_weights_are_no_trouble(kind: type[GeometricSGD], shape: tuple[int, int]) -> None:
    weight = nn.Parameter(torch.empty(shape))
    train(kind([weight], lr=0.1, momentum=0.9), weight, torch.empty(2, *shape))
    assert weight.shape == shape


def test_a_capturable_rate_stays_a_tensor_after_loading_a_number() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = ScaledSGD([weight], lr=0.1, capturable=True)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["lr"] = 0.5
    optimizer.load_state_dict(saved)
    assert isinstance(optimizer.param_groups[0]["lr"], Tensor)
    assert float(optimizer.param_groups[0]["lr"]) == 0.5


def test_a_capturable_optimizer_has_its_state_and_its_rate_beside_the_parameters_at_once() -> None:
    weight = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    optimizer = ScaledSGD([weight], lr=0.1, momentum=0.9, capturable=True)
    assert optimizer.param_groups[0]["lr"].dtype == torch.float64
    assert torch.equal(optimizer.state[weight]["momentum_buffer"], torch.zeros(2, 2))
    elsewhere = nn.Parameter(torch.empty(2, 2, dtype=torch.bfloat16, device="meta"))
    optimizer = ScaledSGD([elsewhere], lr=torch.tensor(0.1), capturable=True)
    assert optimizer.param_groups[0]["lr"].device.type == "meta"
    assert optimizer.state[elsewhere]["master"].dtype == torch.float32


def test_groups_can_be_given_to_two_optimizers() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    groups = [{"params": [weight], "geometry": "rows"}]
    ScaledSGD(groups, lr=0.5)
    assert ScaledSGD(groups, lr=0.1).param_groups[0]["lr"] == 0.1
    assert groups == [{"params": [weight], "geometry": "rows"}]


@pytest.mark.skipif(not hasattr(Tensor, "grad_dtype"), reason="before torch 2.10 torch itself refuses them")
def test_complex_gradients_are_refused_before_anything_changes() -> None:
    first, second = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    optimizer = ScaledSGD([first, second], lr=0.1)
    second.grad_dtype = None
    first.grad, second.grad = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.complex64)
    with pytest.raises(GradientError, match="gradient of parameter 1 of its group is complex"):
        optimizer.step()
    assert torch.equal(first, torch.ones(2, 2))


def test_parameters_without_data_yet_are_accepted() -> None:
    weight = nn.Parameter(torch.empty(2, 2, device="meta"))
    assert UnitNormSGD([weight]).param_groups[0]["params"] == [weight]


@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_a_model_is_refused_with_the_way_to_its_groups(kind: type[GeometricSGD]) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(
        OptionError, match=rf"{kind.__name__} takes .* Sequential: give .*param_groups\(model\)"
    ):
        kind(model, lr=0.1)  # pyright: ignore[reportArgumentType]
    parameters = nn.ParameterList([torch.randn(3, 2), torch.randn(2, 2)])
    assert len(kind(parameters, lr=0.1).param_groups[0]["params"]) == 2


@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD, FullMetricSGD])
def test_an_option_there_is_not_is_refused_by_the_class_that_was_called(kind: type[GeometricSGD]) -> None:
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\..*unexpected keyword argument 'betas'"):
        kind([nn.Parameter(torch.eye(2))], betas=(0.9, 0.99))  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("kind", ["ScaledSGD", "UnitNormSGD", "invariant"])
def test_groups_with_and_without_names_are_not_mixed_and_it_says_what_to_do(kind: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    symoptim.balance_(model, tolerance=math.inf)
    extra = nn.Linear(2, 2)
    nn.init.eye_(extra.weight)

    def made(groups: Any) -> Optimizer:
        if kind == "invariant":
            return symoptim.invariant(torch.optim.AdamW, groups)
        return getattr(symoptim, kind)(groups)

    optimizer = made(symoptim.param_groups(model))
    before = optimizer.param_groups.copy()
    with pytest.raises(OptionError, match=r"group without names .*\('head\.weight', head\.weight\)"):
        optimizer.add_param_group({"params": extra.weight})
    assert optimizer.param_groups == before
    optimizer.add_param_group({"params": [("extra.weight", extra.weight)]})
    assert optimizer.param_groups[-1]["param_names"] == ["extra.weight"]
    with pytest.raises(OptionError, match=r"group without names"):
        made([*symoptim.param_groups(model), {"params": [extra.weight]}])
    with pytest.raises(OptionError, match=r"group with names .*: give its parameters alone"):
        made([extra.weight]).add_param_group({"params": [("0.weight", model[0].weight)]})
