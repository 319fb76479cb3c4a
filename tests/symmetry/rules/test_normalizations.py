"""An eps that is part of the function."""

import copy

import pytest
import torch
from torch import nn

from symoptim.symmetry.discover import discover
from tests.support.sampling import one_in

NORMS = {
    "layer norm": lambda eps: nn.LayerNorm(4, eps=eps),
    "rms norm": lambda eps: nn.RMSNorm(4, eps=eps),
    "group norm": lambda eps: nn.GroupNorm(2, 4, eps=eps),
    "batch norm": lambda eps: nn.BatchNorm1d(4, eps=eps),
}


@pytest.mark.parametrize("eps", [1.0, 2e-3])
@pytest.mark.parametrize("name", one_in(2, NORMS))
def test_a_large_eps_pins_what_is_normalized(name: str, eps: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), NORMS[name](eps), nn.Linear(4, 2)).double()
    inputs = torch.randn(8, 3, dtype=torch.float64)
    spec = discover(model, (inputs,))
    assert len(spec) == 4
    assert not bool(spec.moves(["0.weight"]).any())
    assert list(spec.pinned.values()) == [1]
    assert not spec.approximate
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(rescaled(inputs), model(inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", one_in(2, NORMS))
def test_an_ordinary_eps_is_listed(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), NORMS[name](1e-3), nn.Linear(4, 2))
    spec = discover(model, (torch.randn(8, 3),))
    assert len(spec) > 4
    assert any("eps 0.001" in name for name in spec.approximate)


def test_an_instance_norm_with_a_large_eps_pins_what_is_normalized() -> None:
    model = nn.Sequential(nn.Conv1d(3, 4, 1), nn.InstanceNorm1d(4, eps=0.5, affine=True), nn.Conv1d(4, 2, 1))
    spec = discover(model, (torch.randn(2, 3, 5),))
    assert not bool(spec.moves(["0.weight"]).any())
    assert len(spec) == 4 + 4  # gains, and biases that are subtracted again
