"""What ``UnitNormSGD`` does to a network when it is made: nothing, or it says so."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import symoptim
from symoptim import UnitNormSGD, param_groups
from symoptim.errors import EpsWarning, GeometryWarning, OptionError, SymmetryError
from tests.symmetry.test_unit_rows import CASES, perceptron, unbalanced


def a_case(name: str) -> tuple[nn.Module, Tensor, set[str]]:
    make, shape, gauge = CASES[name]
    return unbalanced(make()), torch.rand(shape, dtype=torch.float64), gauge


def names_of(optimizer: UnitNormSGD, geometry: str) -> set[str]:
    groups = [group for group in optimizer.param_groups if group["geometry"] == geometry]
    return {name for group in groups for name in group["param_names"]}


@pytest.mark.filterwarnings("ignore:.*are .plain.:symoptim.errors.GeometryWarning")
@pytest.mark.filterwarnings("ignore:UnitNormSGD takes plain steps:symoptim.errors.GeometryWarning")
@pytest.mark.parametrize("name", CASES)
def test_with_example_inputs_outputs_stay_what_they_were(name: str) -> None:
    model, x, gauge = a_case(name)
    before = copy.deepcopy(model)(x).detach()
    optimizer = UnitNormSGD(param_groups(model, example_inputs=(x,)), lr=0.01, momentum=0.9)
    assert (model(x) - before).norm() <= 1e-12 * before.norm()
    assert names_of(optimizer, "rows") == gauge
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    for one in optimizer.param_groups:
        if one["geometry"] == "rows":
            rows = (p.detach().transpose(0, one["axis"]).flatten(1) for p in one["params"])
            assert all((row.norm(dim=1) - 1).abs().max() < 1e-12 for row in rows)


def test_rows_that_are_no_gauge_are_named_and_plain() -> None:
    model, x, _ = a_case("attention")
    groups = param_groups(model, example_inputs=(x,))
    table = {line.split()[0]: line for line in str(groups).splitlines()[2:]}
    assert table["query.weight"].endswith("its outputs rescale")
    assert table["key.weight"].endswith("its outputs rescale, not each row by itself")
    key = model.key.weight.detach().clone()
    said = r"plain steps for weights whose rows do not have unit norm.*: parameter 'key\.weight'\. "
    with pytest.warns(GeometryWarning, match=said) as seen:
        optimizer = UnitNormSGD(groups)
    assert seen[0].filename == __file__
    assert names_of(optimizer, "plain") >= {"key.weight"}
    assert not torch.equal(model.key.weight, key)  # it absorbs what the query loses
    assert groups[0]["param_names"] == ["query.weight", "key.weight", "value.weight"]


def test_a_warning_taken_for_an_error_comes_before_any_change() -> None:
    for known in (False, True):
        model, x, _ = a_case("attention")
        before = copy.deepcopy(model.state_dict())
        groups = param_groups(model, example_inputs=(x,) if known else None)
        with pytest.raises(GeometryWarning):
            UnitNormSGD(groups)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_without_symmetries_it_says_what_it_changes_and_by_how_much() -> None:
    model, x = nn.Sequential(nn.Linear(2, 1), nn.Tanh(), nn.Linear(1, 1)).double(), torch.rand(3, 2).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 4.0]]))
    before = model(x).detach()
    said = (
        r"a row changes by a factor of up to 5, .*: parameter '0\.weight'\. Give groups.*keywords=dict.*=True"
    )
    with pytest.warns(GeometryWarning, match=said) as seen:
        UnitNormSGD(param_groups(model))
    assert seen[0].filename == __file__
    assert (model(x) - before).abs().max() > 0.01


def test_the_user_may_say_that_the_change_is_meant_or_must_not_be() -> None:
    model, x, _ = a_case("attention")
    before = copy.deepcopy(model.state_dict())
    ways = (
        r"leave normalize out and give .*param_groups\(model, example_inputs=.*balance_\(model, spec=spec\)"
    )
    with pytest.raises(OptionError, match=r"normalize=False, and rows are not of unit norm.*" + ways):
        UnitNormSGD(param_groups(model), normalize=False)
    with pytest.raises(OptionError, match=r"normalize=False, and rows are not of unit norm"):
        UnitNormSGD(param_groups(model, example_inputs=(x,)), normalize=False)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    optimizer = UnitNormSGD(param_groups(model, example_inputs=(x,)), normalize=True)
    assert "key.weight" in names_of(optimizer, "rows")
    weight = nn.Parameter(torch.randn(2, 3))
    UnitNormSGD([{"params": [weight], "normalize": True}])
    UnitNormSGD([weight], normalize=False)
    with pytest.raises(OptionError, match="normalize must be True, False or None, got 'yes'"):
        UnitNormSGD([weight], normalize="yes")


def test_a_group_has_an_option_of_its_own() -> None:
    model, x, _ = a_case("attention")
    groups = param_groups(model, example_inputs=(x,))
    groups[0]["normalize"] = True
    assert "key.weight" in names_of(UnitNormSGD(groups), "rows")


@pytest.mark.parametrize("make", [symoptim.models.arch1, symoptim.models.arch2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_papers_networks_start_balanced_and_nothing_is_said(
    make: Callable[..., nn.Module], dtype: torch.dtype
) -> None:
    model, x = make(2, inputs=5, classes=3, width=8).to(dtype), torch.rand(9, 5, dtype=dtype)
    weights = copy.deepcopy(model.state_dict())
    one = UnitNormSGD(param_groups(model))
    other = UnitNormSGD(param_groups(model, example_inputs=(x,)))
    assert names_of(one, "rows") == names_of(other, "rows") != set()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=1e-6, atol=0)


def test_rows_that_were_frozen_are_warned_of_before_they_are_stepped() -> None:
    model, x = perceptron(), torch.rand(6, 3)
    model[0].weight.requires_grad_(False)
    with torch.no_grad():
        symoptim.balance_(model, tolerance=math.inf)
        model[0].weight.mul_(3)
    optimizer = UnitNormSGD(param_groups(model), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    model[0].weight.requires_grad_(True)
    model(x).sum().backward()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(GeometryWarning, match=r"parameter '0\.weight'"):
        optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.warns(GeometryWarning, match=r"parameter '0\.weight'"):
        optimizer.step()
    assert torch.allclose(model[0].weight.norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("fused", [None, False])
def test_weights_loaded_after_it_was_made_are_warned_of(fused: bool | None, known: bool) -> None:
    model, x = symoptim.balance_(perceptron(), tolerance=math.inf), torch.rand(6, 3)
    groups = param_groups(model, example_inputs=(x,)) if known else param_groups(model)
    optimizer = UnitNormSGD(groups, lr=1e-9, fused=fused)
    refusing = UnitNormSGD(groups, lr=1e-9, fused=fused, normalize=False)
    model.load_state_dict(perceptron().state_dict())
    model(x).sum().backward()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(GeometryWarning, match="changed after the optimizer was made: load weights first"):
        optimizer.step()
    with pytest.raises(OptionError, match="normalize=False, and rows are not of unit norm"):
        refusing.step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.warns(GeometryWarning, match="load weights first"):
        optimizer.step()
    optimizer.step()  # said once


def test_weights_of_unit_norm_may_be_loaded_after_it_was_made() -> None:
    model, x = symoptim.balance_(perceptron(), tolerance=math.inf), torch.rand(6, 3)
    optimizer = UnitNormSGD(param_groups(model), lr=1e-9)
    model.load_state_dict(symoptim.balance_(perceptron(), tolerance=math.inf).state_dict())
    model(x).sum().backward()
    optimizer.step()  # no warning, which would be an error here


@pytest.mark.parametrize("weights_first", [True, False])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_resumed_optimizer_goes_on_where_it_stopped(
    dtype: torch.dtype, known: bool, weights_first: bool
) -> None:
    torch.manual_seed(0)
    # Many rows of few entries: norms of some, rounded, are so far from 1 that another division would show.
    network = nn.Sequential(nn.Linear(8, 999), nn.ReLU(), nn.Linear(999, 2))
    model, x = unbalanced(network).to(dtype), torch.rand(9, 8).to(dtype)

    def steps(model: nn.Module, optimizer: UnitNormSGD) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    def made(model: nn.Module) -> UnitNormSGD:
        groups = param_groups(model, example_inputs=(x,)) if known else param_groups(model)
        return UnitNormSGD(groups, lr=0.01, momentum=0.9, normalize=None if known else True)

    optimizer, other = made(model), copy.deepcopy(model)
    steps(model, optimizer)
    weights, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    if weights_first:
        other.load_state_dict(weights)
    resumed = made(other)
    other.load_state_dict(other.state_dict() if weights_first else weights)
    resumed.load_state_dict(state)
    steps(model, optimizer)
    steps(other, resumed)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def test_a_state_from_before_there_was_the_option_is_taken() -> None:
    weight = nn.Parameter(torch.eye(2))
    saved = UnitNormSGD([weight], momentum=0.9).state_dict()
    del saved["param_groups"][0]["normalize"]
    optimizer = UnitNormSGD([weight], momentum=0.9)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["normalize"] is None


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_bert_computes_what_it_did_or_is_said_to_change(activation: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_act=activation,
    )
    model = unbalanced(transformers.BertModel(config, add_pooling_layer=False)).eval()
    tokens = torch.randint(50, (2, 7))
    before = model(tokens).last_hidden_state.detach()
    with pytest.warns(GeometryWarning, match=r"plain steps for weights.*attention\.self\.key"):
        UnitNormSGD(param_groups(model, example_inputs=(tokens,)), lr=0.01)
    assert (model(tokens).last_hidden_state - before).norm() <= 1e-12 * before.norm()
    with pytest.warns(GeometryWarning, match="registered last and is taken for the classifier"):
        groups = param_groups(model)
    with pytest.warns(GeometryWarning, match="the length of a row changes by a factor of up to"):
        UnitNormSGD(groups, lr=0.01)
    assert (model(tokens).last_hidden_state - before).norm() > 0.1 * before.norm()


def test_where_eps_is_felt_the_refusal_has_a_way_out() -> None:
    torch.manual_seed(0)
    x = 0.1 * torch.randn(32, 3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, eps=1e-3), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.mul_(100)
    groups, before = param_groups(model, example_inputs=(x,)), copy.deepcopy(model.state_dict())
    words = r"outputs would change by .*symoptim\.balance_\(model, spec=groups\.spec, tolerance=math\.inf\)"
    with pytest.raises(SymmetryError, match=words):
        UnitNormSGD(groups)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    symoptim.balance_(model, spec=groups.spec, tolerance=math.inf)
    weight = model[0].weight.detach().clone()
    assert names_of(UnitNormSGD(groups), "rows") == {"0.weight"}
    assert torch.equal(model[0].weight, weight)


def test_symmetries_from_text_are_measured_on_the_example_that_groups_are_given() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, eps=1e-3), nn.ReLU(), nn.Linear(4, 2))
    x = 0.1 * torch.randn(32, 3)
    spec = symoptim.SymmetrySpec.from_json(symoptim.discover(model, (x,)).to_json())
    groups = param_groups(model, spec=spec)
    with pytest.raises(EpsWarning, match=r"param_groups\(model, spec=spec, example_inputs=\(x,\)\)"):
        UnitNormSGD(groups)
    for given in ({"example_inputs": (100 * x,)}, {"example_inputs": (), "keywords": {"input": 100 * x}}):
        UnitNormSGD(param_groups(copy.deepcopy(model), spec=spec, **given))  # nothing is left to be said
    with torch.no_grad():
        model[0].weight.mul_(100)
    with pytest.raises(SymmetryError, match="outputs would change by"):
        UnitNormSGD(param_groups(model, spec=spec, example_inputs=(x,)))


@pytest.mark.parametrize("added", [{}, {"geometry": "plain"}, {"geometry": "rows", "normalize": True}])
def test_groups_added_by_hand_have_the_defaults_of_the_optimizer(added: dict[str, object]) -> None:
    model, x = perceptron().double(), torch.rand(6, 3, dtype=torch.float64)
    groups, extra = param_groups(model, example_inputs=(x,)), nn.Parameter(torch.eye(2, dtype=torch.float64))
    groups.append({"params": [("extra", extra)], **added})
    assert "'extra' " in str(groups)
    optimizer = UnitNormSGD(groups)
    geometry = str(added.get("geometry", "rows"))
    assert "extra" in names_of(optimizer, geometry)
    assert "0.weight" in names_of(optimizer, "rows")
