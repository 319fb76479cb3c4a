"""What counts as the same program: one that runs, and computes what the model does."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry import program as programs
from symoptim.symmetry.discover import discover
from symoptim.symmetry.program import does_the_same
from symoptim.symmetry.quiet import quietly

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
    monkeypatch.setattr(programs, "_run", failing)
    assert not does_the_same(program, model, (X,), {})


def test_where_the_model_itself_fails_there_is_nothing_to_compare() -> None:
    model = Switched()
    program = exported(model)
    model.fails = True
    assert does_the_same(program, model, (X,), {})


def test_a_model_whose_program_fails_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert not discover(model, (X,)).recorded
    monkeypatch.setattr(programs, "_run", failing)
    spec = discover(model, (X,))
    assert len(spec) == 4
    assert "fails, or computes something else" in spec.recorded
