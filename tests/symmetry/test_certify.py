"""Certificates: they hold for what discovery finds, and a false rule is caught."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.errors import TraceError
from symoptim.symmetry.certify import Certificate, certify
from symoptim.symmetry.discover import discover
from symoptim.symmetry.form import Form
from symoptim.symmetry.rules.registry import RULES, Context
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.trials import difference
from tests.support.oracle import true_dimension
from tests.support.zoo import ZOO, caught, for_some_animals, group_of
from tests.support.zoo.animal import Lambda, weight


@for_some_animals
def test_what_is_found_is_certified(name: str) -> None:
    model, arguments, _ = caught(name)
    certificate = certify(group_of(name), model, arguments)
    assert certificate.output_error < 1e-10
    assert certificate.noether_residual < 1e-12
    assert certificate.holds


def test_the_eps_of_a_normalization_is_felt_and_measured() -> None:
    model = ZOO["arch2 training"].make().double()
    arguments = caught("arch2 training").arguments
    certificate = certify(discover(model, arguments), model, arguments)
    assert certificate.output_error < 1e-10 < 1e-7 < certificate.eps_error < 0.1
    assert len(certificate.approximate) == 2
    assert all("eps 1e-05" in name for name in certificate.approximate)


def test_a_model_is_left_as_it_was() -> None:
    model, arguments, _ = caught("arch2 training")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    certify(discover(model, arguments), model, arguments)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def false_rule(context: Context, form: Form, *_: Any, **__: Any) -> Form:
    """Says that tanh lets a scale through."""
    return form


def test_a_false_rule_is_caught_by_the_certificate_and_by_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "tanh", false_rule)
    model, arguments, inputs = caught("mlp, tanh")
    spec = discover(model, arguments)
    certificate = certify(spec, model, arguments)
    assert not certificate.holds
    assert certificate.output_error > 1e-3
    assert certificate.noether_residual > 1e-3
    assert len(spec) > true_dimension(model, inputs)


def test_outputs_that_are_no_numbers_any_more_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "acos", false_rule)
    model = Lambda(lambda self, x: torch.acos(x * self.one) * self.other, one=weight(4), other=weight(4))
    model = model.double()
    with torch.no_grad():
        model.one.fill_(1.0)
    arguments = (torch.full((3, 4), 0.999, dtype=torch.float64),)
    certificate = certify(discover(model, arguments), model, arguments)
    assert certificate.output_error == float("inf")
    assert not certificate.holds


def test_a_wrong_exponent_is_caught() -> None:
    (model, arguments, _), spec = caught("mlp"), group_of("mlp")
    values = spec.exponents.values.clone()
    values[0] *= 2
    wrong = dataclasses.replace(spec, exponents=spec.exponents._replace(values=values))
    assert not certify(wrong, model, arguments).holds


def test_dropout_drops_the_same_before_and_after() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2)).double()
    arguments = (torch.rand(6, 3, dtype=torch.float64),)
    spec = discover(model, arguments)
    assert len(spec) == 8
    assert certify(spec, model, arguments).output_error < 1e-12


class Small(nn.Module):
    """Two layers, and something done to hidden features and to what comes out."""

    def __init__(self, hidden: Callable[[Tensor], Tensor], output: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.hidden, self.output = hidden, output

    def forward(self, x: Tensor) -> object:
        return self.output(self.second(self.hidden(self.first(x))))


def certificate_of(
    hidden: Callable[[Tensor], Tensor] = torch.relu, output: Callable[[Tensor], object] = lambda y: y
) -> Certificate:
    torch.manual_seed(0)
    model, inputs = Small(hidden, output), (torch.rand(6, 3),)
    spec = discover(model, inputs)
    assert len(spec) > 0
    return spec.certify(model, inputs)


def test_an_eps_is_found_wherever_it_is_written() -> None:
    for hidden in (
        lambda h: h * torch.rsqrt(h.square().mean(dim=-1, keepdim=True) + 1e-4),
        lambda h: nn.functional.layer_norm(h, (4,), eps=1e-3),
        lambda h: nn.functional.normalize(h, eps=1e-4),
    ):
        certificate = certificate_of(hidden)
        assert certificate.holds
        assert certificate.output_error < 1e-12 < certificate.eps_error or "clamp_min" in str(
            certificate.approximate
        )


def test_infinite_outputs_are_compared() -> None:
    masked = certificate_of(output=lambda y: y.masked_fill(torch.tensor([True, False]), float("-inf")))
    assert masked.holds
    assert masked.output_error < 1e-12


def test_integer_outputs_are_compared_exactly() -> None:
    assert difference([torch.tensor([1, 2])], [torch.tensor([1, 2])]) == 0
    assert difference([torch.tensor([1, 2])], [torch.tensor([1, 3])]) == float("inf")
    assert certificate_of(output=lambda y: y.argmax(dim=-1)).holds


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_outputs_that_break_down_are_the_worst(bad: float) -> None:
    assert difference([torch.tensor([1.0, 2.0])], [torch.tensor([1.0, bad])]) == float("inf")
    assert difference([torch.tensor([1.0, 2.0])], [torch.tensor([[1.0, 2.0]])]) == float("inf")


def test_a_model_without_outputs_has_no_certificate() -> None:
    model = Small(torch.relu, lambda y: None)
    spec = discover(nn.Sequential(model.first, nn.ReLU(), model.second), (torch.rand(6, 3),))
    renamed = SymmetrySpec.from_json(spec.to_json().replace('"0.', '"first.').replace('"2.', '"second.'))
    with pytest.raises(TraceError, match="returns no tensors"):
        renamed.certify(model, (torch.rand(6, 3),))


class Remembering(nn.Module):
    """Its second call sees what the first has left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)
        self.register_buffer("state", torch.zeros(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        output = self.second(hidden) + self.third(self.state)
        self.state.copy_(hidden)
        return output


def test_what_a_call_leaves_behind_is_seen_by_a_certificate() -> None:
    model, inputs = Remembering().double(), (torch.rand(6, 3, dtype=torch.float64),)
    spec = discover(model, inputs)
    assert len(spec) == 4
    assert certify(spec, model, inputs).holds
    moved = {name: one for name, one in spec.tensors.items() if name != "third.weight"}
    forgetful = dataclasses.replace(spec, tensors=moved)  # the first call reads zeros, and sees no difference
    assert not certify(forgetful, model, inputs).holds


def test_examples_of_the_group_are_tried_if_they_differ_in_a_tensor_or_in_anything_else() -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor, negate: bool = False) -> Tensor:
            hidden = torch.relu(self.first(x))
            return self.last(-hidden if negate else hidden)

    model, x = Chooses(), torch.rand(5, 3)
    spec = discover(model, (x,), inputs=[(x.clone(),), (x, True), (x + 1,)])
    tried = certify(spec, model, (x.clone(),), draw=False).tried
    assert tried == ("the example", "example 2 of the group", "example 3 of the group")
