"""Operations on single entries."""

import pytest
import torch
from torch import nn
from torch.nn.functional import glu, linear

from symoptim.symmetry.discover import discover
from symoptim.symmetry.interpret import interpret
from symoptim.symmetry.record import record
from tests.support.oracle import exact, true_dimension
from tests.support.soundness import changes
from tests.support.zoo.animal import Lambda, rand


def test_one_half_of_a_gated_unit_is_free_and_the_gate_is_pinned() -> None:
    model = exact(
        Lambda(
            lambda self, x: self.head(glu(self.first(x), dim=-1)), first=nn.Linear(3, 8), head=nn.Linear(4, 2)
        )
    )
    inputs = rand(8, 3)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert len(spec) == 4 == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)
    assert not interpret([record(model, arguments)]).unknown


COARSE = {
    "weights": lambda self, x: linear(
        torch.relu(self.first(x)), self.head.weight.to(torch.float8_e4m3fn).to(x.dtype)
    ),
    "features": lambda self, x: self.head(torch.relu(self.first(x)).to(torch.float8_e5m2).to(x.dtype)),
    "copied features": lambda self, x: self.head(in_eighths(torch.relu(self.first(x))).to(x.dtype)),
}


def in_eighths(features: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(features, dtype=torch.float8_e4m3fn).copy_(features)


@pytest.mark.parametrize("name", COARSE)
def test_eight_bits_are_no_copy(name: str) -> None:
    model = Lambda(COARSE[name], first=nn.Linear(3, 4), head=nn.Linear(4, 2)).double()
    assert len(discover(model, (torch.randn(5, 3, dtype=torch.float64),), vouch="*")) == 0


def test_weights_of_eight_bits_do_not_move() -> None:
    model = Lambda(
        lambda self, x: linear(torch.relu(self.first(x)), self.head.weight.to(x.dtype)),
        first=nn.Linear(3, 4),
        head=nn.Linear(4, 2),
    )
    model.head.weight = nn.Parameter(model.head.weight.to(torch.float8_e4m3fn), requires_grad=False)
    assert len(discover(model, (torch.randn(5, 3),), vouch="*")) == 0


def test_half_precision_is_a_copy() -> None:
    model = Lambda(
        lambda self, x: self.head(torch.relu(self.first(x)).bfloat16().to(x.dtype)),
        first=nn.Linear(3, 4),
        head=nn.Linear(4, 2),
    )
    assert len(discover(model, (torch.randn(5, 3),))) == 4
