"""Exported graphs of models, and programs that do something else than their model."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry import trace
from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover
from symoptim.symmetry.environment import quietly
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.trace import does_the_same


class Overwriting(nn.Module):
    """Writes to its own weight, as some home-made averaging does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(torch.relu(self.first(x)))
        with torch.no_grad():
            self.first.weight.copy_(torch.tanh(self.first.weight))
        return out


def test_what_a_pass_writes_to_a_parameter_has_the_scale_it_had() -> None:
    assert len(discover(Overwriting(), (torch.rand(5, 3),))) == 0


class Writing(nn.Module):
    """Adds what it found to its input, which is seen outside."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        x += hidden
        return self.second(hidden)


def test_what_a_pass_writes_to_its_input_cannot_move() -> None:
    assert len(discover(Writing(), (torch.rand(5, 3),))) == 0


class WithTable(nn.Module):
    """Multiplies features by numbers in a buffer."""

    def __init__(self, *, persistent: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)
        self.register_buffer("table", torch.rand(4) + 1, persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)) * self.table)


def spec_of(model: nn.Module) -> SymmetrySpec:
    return discover(model, (torch.rand(5, 3),))


def test_a_buffer_that_is_not_saved_stays_as_it_is() -> None:
    spec = spec_of(WithTable(persistent=False))
    assert len(spec) == 4
    assert "table" not in spec.tensors


def test_a_buffer_that_is_saved_may_move() -> None:
    assert len(spec_of(WithTable(persistent=True))) == 8


def test_a_saved_model_computes_the_same_after_a_rescaling() -> None:
    torch.manual_seed(0)
    model = WithTable(persistent=False).double()
    inputs = torch.rand(5, 3, dtype=torch.float64)
    spec, fresh = discover(model, (inputs,)), copy.deepcopy(model)
    before = model(inputs)
    fresh.load_state_dict(spec.rescale_(model, spec.random(spread=2.0)).state_dict())
    torch.testing.assert_close(fresh(inputs), before, rtol=1e-12, atol=0)


class Named(nn.Module):
    """Takes one of its inputs by name and returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, *, gain: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.first(x) * gain)
        return {"scores": self.second(hidden)}


def test_arguments_by_name_and_outputs_in_dictionaries_are_understood() -> None:
    arguments, keywords = (torch.rand(5, 3),), {"gain": torch.rand(4)}
    model = Named()
    spec = discover(model, arguments, keywords)
    assert len(spec) == 4
    assert certify(spec, model, arguments, keywords).holds


X = torch.rand(5, 3)


class Switched(nn.Module):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.layer, self.fails = nn.Linear(3, 2), fails

    def forward(self, x: Tensor) -> Tensor:
        if self.fails:
            raise KeyError("fails")
        return self.layer(x)


def exported(model: nn.Module) -> Any:
    with quietly():
        return torch.export.export(model, (X,)).run_decompositions({})


def failing(*_: object) -> list[Tensor]:
    raise RuntimeError("fails")


def test_a_program_that_fails_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Switched()
    program = exported(model)
    assert does_the_same(program, model, (X,), {})
    monkeypatch.setattr(trace, "_run", failing)
    assert not does_the_same(program, model, (X,), {})


def test_where_the_model_itself_fails_there_is_nothing_to_compare() -> None:
    model = Switched()
    program = exported(model)
    model.fails = True
    assert does_the_same(program, model, (X,), {})


def test_a_model_whose_program_fails_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert not discover(model, (X,)).recorded
    monkeypatch.setattr(trace, "_run", failing)
    spec = discover(model, (X,))
    assert len(spec) == 4
    assert "fails, or computes something else" in spec.recorded
