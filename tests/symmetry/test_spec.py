"""Elements of a group act as a group does, on a model and on its optimizer's state; JSON keeps all of it."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import symoptim
from symmetry.zoo import group_of
from symoptim.errors import OptionError, SymmetryError
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec


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
    spec.rescale_(model, element)
    assert not torch.equal(model[0].weight, before[0].weight)
    assert_same(spec.rescale_(model, -element), before)


def test_two_elements_one_after_the_other_are_their_sum() -> None:
    model, _, spec = a_model()
    one, other = spec.random(seed=1), spec.random(seed=2)
    both = spec.rescale_(spec.rescale_(copy.deepcopy(model), one), other)
    assert_same(spec.rescale_(copy.deepcopy(model), one + other), both)


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
    with pytest.raises(SymmetryError, match=r"'0.weight' .* is not there"):
        spec.rescale_(nn.ReLU(), spec.random())


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


def test_a_copy_of_weights_in_more_digits_moves_like_the_weights() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).bfloat16()
    inputs = torch.rand(8, 3, dtype=torch.bfloat16)
    spec = discover(model, (inputs,))
    optimizer = symoptim.ScaledSGD([{"params": list(model.parameters()), "geometry": "plain"}], lr=0.1)
    noting(optimizer, model, inputs)
    before = [optimizer.state[parameter]["master"].clone() for parameter in model.parameters()]
    element = spec.random(seed=1)
    spec.rescale_(model, element, optimizer=optimizer)
    log_scales = spec.log_scales(element)
    for (name, parameter), old in zip(model.named_parameters(), before, strict=True):
        master = optimizer.state[parameter]["master"]
        torch.testing.assert_close(master, old * log_scales[name].exp().float())
        torch.testing.assert_close(parameter.float(), master, rtol=0.02, atol=0)  # of 8 bits


def test_state_of_an_unknown_kind_is_refused_before_anything_is_changed() -> None:
    model, _, spec = a_model()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model[0].weight]["curvature"] = torch.ones(4, 3)
    with pytest.raises(OptionError, match=r"state 'curvature'.*before its optimizer is made"):
        spec.rescale_(model, spec.random(), optimizer=optimizer)
    assert_same(model, before)


def test_state_of_filters_in_their_own_coordinates_is_refused() -> None:
    model, _, spec = a_model()
    before = copy.deepcopy(model)
    for make in (symoptim.ScaledSGD, symoptim.UnitNormSGD):
        optimizer = make(symoptim.param_groups(before), lr=0.1)
        with pytest.raises(OptionError, match="coordinates of their own"):
            spec.rescale_(before, spec.random(), optimizer=optimizer)
    assert_same(model, a_model()[0])


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
    [([0.0], "got list"), (torch.full((12,), torch.nan), "finite"), (torch.full((12,), torch.inf), "finite")],
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


def test_a_group_is_short_in_an_error_message() -> None:
    assert repr(a_model()[2]) == "<SymmetrySpec: 12 rescalings of 8 tensors>"
