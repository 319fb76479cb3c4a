"""Elements of a group act as a group does, on a model and on its optimizer's state; JSON keeps all of it."""

import copy
import dataclasses
import math
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import symoptim
from symoptim.errors import OptionError, SymmetryError
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.zoo import group_of


def a_model() -> tuple[nn.Module, Tensor, SymmetrySpec]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()
    inputs = torch.rand(8, 3, dtype=torch.float64)
    return model, inputs, discover(model, (inputs,))


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (name, tensor), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(
            tensor, expected, rtol=1e-12, atol=0, msg=lambda words, n=name: f"{n}: {words}"
        )


def test_the_negative_of_an_element_takes_it_back() -> None:
    model, _, spec = a_model()
    before = copy.deepcopy(model)
    element = spec.random(seed=1, spread=2.0)
    spec.rescale_(model, element, tolerance=math.inf)
    assert not torch.equal(model[0].weight, before[0].weight)
    assert_same(spec.rescale_(model, -element, tolerance=math.inf), before)


def test_two_elements_one_after_the_other_are_their_sum() -> None:
    model, _, spec = a_model()
    one, other = spec.random(seed=1), spec.random(seed=2)
    both = copy.deepcopy(model)
    for element in (one, other):
        spec.rescale_(both, element, tolerance=math.inf)
    assert_same(spec.rescale_(copy.deepcopy(model), one + other, tolerance=math.inf), both)


def test_random_elements_are_within_their_spread_and_repeat() -> None:
    _, _, spec = a_model()
    drawn = spec.random(seed=3, spread=0.5)
    assert drawn.shape == (len(spec),)
    assert 0.2 < drawn.abs().max() <= 0.5
    assert torch.equal(drawn, spec.random(seed=3, spread=0.5))
    assert not torch.equal(drawn, spec.random(seed=4, spread=0.5))


def test_an_element_of_the_wrong_size_changes_nothing() -> None:
    model, _, spec = a_model()
    before = copy.deepcopy(model)
    with pytest.raises(OptionError, match=f"has {len(spec)} log-scales, got shape \\(2,\\)"):
        spec.rescale_(model, torch.zeros(2))
    assert_same(model, before)


def test_another_model_is_refused_before_anything_is_changed() -> None:
    _, _, spec = a_model()
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).double()
    before = copy.deepcopy(other)
    with pytest.raises(SymmetryError, match=r"'3.weight' must have shape \(2, 4\), and has shape \(3, 4\)"):
        spec.rescale_(other, spec.random())
    assert_same(other, before)
    with pytest.raises(SymmetryError, match=r"has no parameter or buffer 0\.weight.*discover"):
        spec.rescale_(nn.ReLU(), spec.random())


def two_layers(*, tied: bool) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).double()
    if tied:
        model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("tied", "words"),
    [
        (True, r"'2\.weight' and '0\.weight' must be one tensor \(tied\), and are two"),
        (False, r"'0\.weight' and '2\.weight' must be two tensors, and are one \(tied\)"),
    ],
)
def test_a_model_tied_in_another_way_is_refused_before_anything_is_changed(*, tied: bool, words: str) -> None:
    spec = discover(two_layers(tied=tied), (torch.rand(8, 4, dtype=torch.float64),))
    other = two_layers(tied=not tied)
    before = copy.deepcopy(other)
    with pytest.raises(SymmetryError, match=words):
        spec.rescale_(other, spec.random())
    assert_same(other, before)
    same = copy.deepcopy(two_layers(tied=tied)).float()
    assert (same[0].weight is same[2].weight) is tied
    spec.rescale_(same, spec.random())


def test_another_name_that_is_gone_is_said() -> None:
    model, _, spec = a_model()
    tied = dataclasses.replace(spec, aliases={"head.weight": "0.weight"})
    with pytest.raises(
        SymmetryError, match=r"'head\.weight' must be one tensor \(tied\), and the latter is not"
    ):
        tied.require_model(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_products_are_rounded_once(dtype: torch.dtype) -> None:
    model, _, spec = a_model()
    model, element = model.to(dtype), spec.random(seed=1)
    wide = {name: tensor.detach().double() for name, tensor in model.state_dict().items()}
    spec.rescale_(model, element, tolerance=math.inf)
    for name, log_scale in spec.log_scales(element).items():
        assert torch.equal(model.state_dict()[name], (wide[name] * log_scale.exp()).to(dtype)), name


def test_a_factor_out_of_range_is_no_obstacle_where_the_product_is_in_it() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    spec = discover(model, (torch.rand(8, 3, dtype=torch.float64),))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), (1e-3, 1e-3, 1e3, 1.0), strict=True):
            parameter.fill_(value)
    spec.rescale_(model.half(), torch.full((4,), 12.0))  # a factor of 163,000, and float16 ends at 65,504
    torch.testing.assert_close(model[0].weight, torch.full((4, 3), 1e-3 * math.exp(12)).half())
    torch.testing.assert_close(model[2].weight, torch.full((2, 4), 1e3 * math.exp(-12)).half())


def test_entries_too_large_for_their_precision_are_refused_before_anything_is_changed() -> None:
    model, _, spec = a_model()
    model = model.half()
    before, element = copy.deepcopy(model), torch.full((len(spec),), 14.0)  # a factor of a million
    with pytest.raises(SymmetryError, match=r"'.*' would have entries too large for torch\.float16"):
        spec.rescale_(model, element, tolerance=math.inf)
    assert_same(model, before)


def test_state_too_large_for_its_precision_is_refused_before_anything_is_changed() -> None:
    model, _, spec = a_model()
    optimizer = torch.optim.Adagrad(model.half().parameters())
    for parameter in model.parameters():
        optimizer.state[parameter]["sum"].fill_(6e4)
    before, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(SymmetryError, match=r"the sum of '.*' would have entries too large"):
        spec.rescale_(model, spec.random(spread=3.0), optimizer=optimizer, tolerance=math.inf)
    assert_same(model, before)
    for place, values in optimizer.state_dict()["state"].items():
        assert torch.equal(values["sum"], state["state"][place]["sum"])


def test_entries_that_were_not_finite_are_no_obstacle() -> None:
    model, _, spec = a_model()
    with torch.no_grad():
        model[0].weight[0, 0], model[0].weight[0, 1] = torch.nan, torch.inf
    spec.rescale_(model, spec.random())
    assert model[0].weight[0].isfinite().tolist() == [False, False, True]


def test_charges_are_the_adjoint_of_log_scales() -> None:
    _, _, spec = a_model()
    element = spec.random(seed=1)
    tensors = {name: torch.randn(moved.shape, dtype=torch.float64) for name, moved in spec.tensors.items()}
    moved = sum((spec.log_scales(element)[name] * tensor).sum() for name, tensor in tensors.items())
    torch.testing.assert_close(spec.charges(tensors) @ element, moved)


def noting(optimizer: Optimizer, model: nn.Module, inputs: Tensor) -> None:
    """Steps that gather gradients and, at a rate of zero, move nothing."""
    for scale in (1.0, 0.3, 2.0):
        optimizer.zero_grad()
        (model(inputs).square().sum() * scale).backward()
        optimizer.step()


GATHERING = {
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.0, amsgrad=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.0, eps=1e-300),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.0, centered=True, momentum=0.5, eps=1e-300),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.0),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.0),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.0, t0=0),
}


@pytest.mark.parametrize("name", GATHERING)
def test_state_becomes_what_would_have_been_gathered_at_the_rescaled_weights(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    inputs = torch.rand(8, 3, dtype=torch.float64)
    spec = discover(model, (inputs,))
    element = spec.random(seed=1, spread=2.0)
    early = spec.rescale_(copy.deepcopy(model), element)
    early_optimizer, optimizer = GATHERING[name](early.parameters()), GATHERING[name](model.parameters())
    noting(early_optimizer, early, inputs)
    noting(optimizer, model, inputs)
    spec.rescale_(model, element, optimizer=optimizer)
    for parameter, expected in zip(model.parameters(), early.parameters(), strict=True):
        for key, value in optimizer.state[parameter].items():
            torch.testing.assert_close(value, early_optimizer.state[expected][key], rtol=1e-9, atol=1e-200)


def in_bfloat16() -> tuple[nn.Module, Optimizer, SymmetrySpec]:
    """A model whose optimizer has copies in float32, and has used them."""
    model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2)).bfloat16()
    inputs = torch.rand(8, 3, dtype=torch.bfloat16)
    optimizer = symoptim.ScaledSGD([{"params": list(model.parameters()), "geometry": "plain"}], lr=0.1)
    noting(optimizer, model, inputs)
    return model, optimizer, discover(model, (inputs,))


def test_a_copy_of_weights_in_more_digits_moves_like_the_weights() -> None:
    model, optimizer, spec = in_bfloat16()
    before = [optimizer.state[parameter]["master"].clone() for parameter in model.parameters()]
    element = spec.random(seed=1)
    spec.rescale_(model, element, optimizer=optimizer)
    log_scales = spec.log_scales(element)
    for (name, parameter), old in zip(model.named_parameters(), before, strict=True):
        master = optimizer.state[parameter]["master"]
        torch.testing.assert_close(master, old * log_scales[name].exp().float())
        assert torch.equal(parameter, master.bfloat16())  # or the step would not believe the copy


def test_a_weight_changed_from_outside_wins_over_its_copy_in_more_digits() -> None:
    model, optimizer, spec = in_bfloat16()
    with torch.no_grad():
        model[0].weight[0, 0] = 3.0
    element = spec.random(seed=1)
    expected = 3.0 * spec.log_scales(element)["0.weight"].exp()[0, 0]
    spec.rescale_(model, element, optimizer=optimizer)
    torch.testing.assert_close(optimizer.state[model[0].weight]["master"][0, 0], expected.float())
    assert model[0].weight[0, 0] == expected.bfloat16()


def test_state_of_an_unknown_kind_is_refused_before_anything_is_changed() -> None:
    model, _, spec = a_model()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model[0].weight]["curvature"] = torch.ones(4, 3)
    with pytest.raises(OptionError, match=r"state 'curvature'.*before its optimizer is made"):
        spec.rescale_(model, spec.random(), optimizer=optimizer)
    assert_same(model, before)


def test_symmetries_of_a_part_say_so_to_the_whole_and_the_reverse() -> None:
    model, inputs, spec = a_model()
    whole = nn.ModuleDict({"head": nn.Linear(2, 2), "net": nn.ModuleList([model])})
    with pytest.raises(SymmetryError, match=r"on what is its 'net\.0': give .*get_submodule\('net\.0'\)"):
        spec.require_model(whole)
    spec.require_model(whole.get_submodule("net.0"))
    around = nn.Sequential(model, nn.ReLU())
    with pytest.raises(SymmetryError, match=r"Sequential has no parameter .*that has this one as '0': give"):
        discover(around, (inputs,)).require_model(model)


def test_state_of_filters_in_their_own_coordinates_is_refused() -> None:
    model, _, spec = a_model()
    before = symoptim.balance_(copy.deepcopy(model), tolerance=math.inf)
    unmoved = copy.deepcopy(before)
    for make in (symoptim.ScaledSGD, symoptim.UnitNormSGD):
        optimizer = make(symoptim.param_groups(before), lr=0.1)
        with pytest.raises(OptionError, match="coordinates of their own"):
            spec.rescale_(before, spec.random(), optimizer=optimizer)
    assert_same(before, unmoved)


def test_weight_decay_that_goes_through_the_state_is_refused() -> None:
    model, _, spec = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    with pytest.raises(OptionError, match=r"adds weights to gradients \(weight_decay=0.1\)"):
        spec.rescale_(model, spec.random(), optimizer=optimizer)
    spec.rescale_(
        model, spec.random(), optimizer=torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    )


def test_the_optimizer_of_another_model_is_refused() -> None:
    model, _, spec = a_model()
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(OptionError, match="give the model's optimizer"):
        spec.rescale_(model, spec.random(), optimizer=optimizer)


@pytest.mark.parametrize(
    ("element", "words"),
    [([0.0], "got list"), (torch.full((8,), torch.nan), "finite"), (torch.full((8,), torch.inf), "finite")],
)
def test_what_is_no_element_changes_nothing(element: Tensor, words: str) -> None:
    model, _, spec = a_model()
    with pytest.raises(OptionError, match=words):
        spec.rescale_(model, element)
    assert_same(model, a_model()[0])


@pytest.mark.parametrize("spread", [-1.0, float("nan"), float("inf")])
def test_a_spread_is_a_size(spread: float) -> None:
    with pytest.raises(OptionError, match="spread must be a finite number"):
        a_model()[2].random(spread=spread)


@pytest.mark.parametrize("name", ["arch2 evaluation", "attention by hand", "tied autoencoder", "lstm"])
def test_a_group_survives_json(name: str) -> None:
    spec = group_of(name)
    text = spec.to_json()
    back = SymmetrySpec.from_json(text)
    assert back.to_json() == text
    assert str(back) == str(spec)
    element = spec.random()
    for tensor, scales in spec.log_scales(element).items():
        torch.testing.assert_close(back.log_scales(element)[tensor], scales, rtol=0, atol=0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "something else"}'])
def test_other_text_is_no_group(text: str) -> None:
    with pytest.raises(OptionError, match="these are no symmetries"):
        SymmetrySpec.from_json(text)


def test_what_is_no_text_and_what_is_a_path_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(a_model()[2].to_json())
    with pytest.raises(OptionError, match=r"spec\.json' is the path of a file: give its text, Path\("):
        SymmetrySpec.from_json(str(path))
    for other in (path, {}, None):
        with pytest.raises(OptionError, match=r"not the text that to_json\(\) wrote, but a.*read_text"):
            SymmetrySpec.from_json(other)  # pyright: ignore
    assert len(SymmetrySpec.from_json(path.read_bytes())) == 8  # pyright: ignore
    with pytest.raises(OptionError, match="these are no symmetries: not JSON"):
        SymmetrySpec.from_json("x" * 100_000)


def test_a_model_where_symmetries_are_asked_for_is_refused() -> None:
    model, _, spec = a_model()
    for call in (
        lambda: symoptim.align(spec, model, model),
        lambda: symoptim.align(model, spec, model),
        lambda: symoptim.canonicalize_(spec, model),
        lambda: symoptim.ConservedQuantities(spec, model),
    ):
        with pytest.raises(OptionError, match="got a Sequential: give models first and spec after them"):
            call()


def test_a_group_is_short_in_an_error_message() -> None:
    assert repr(a_model()[2]) == "<SymmetrySpec: 8 rescalings of 8 tensors>"


def test_examples_are_copies_and_are_not_pickled() -> None:
    model, inputs, spec = a_model()
    before = inputs.clone()
    inputs.zero_()
    assert torch.equal(spec.examples[0][0][0], before)
    assert copy.deepcopy(spec).examples is spec.examples
    other = pickle.loads(pickle.dumps(spec))
    assert other.examples == ()
    assert other.to_json() == spec.to_json()
    assert torch.equal(other.random(), spec.random())
    other.require_model(model)
