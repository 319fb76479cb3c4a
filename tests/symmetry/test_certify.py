"""Certificates: they hold for what discovery finds, and a false rule is caught."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from symmetry.oracle import true_dimension
from symmetry.zoo import ZOO, caught, for_every_animal, group_of
from symmetry.zoo.animal import Lambda, weight
from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover
from symoptim.symmetry.form import Form
from symoptim.symmetry.rules.registry import RULES, Context


@for_every_animal
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
