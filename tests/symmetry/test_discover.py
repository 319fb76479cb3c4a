"""Discovery on the zoo: what is found is true, and all that is true is found."""

import copy

import pytest
import torch
from torch import nn

from symmetry.oracle import exact, true_dimension
from symmetry.zoo import ZOO
from symoptim.symmetry.discover import discover


@pytest.mark.parametrize("name", ZOO)
def test_the_whole_group_is_found(name: str) -> None:
    make, inputs = ZOO[name]
    torch.manual_seed(0)
    model = exact(make())
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.unknown
    assert len(spec) == true_dimension(model, inputs)


@pytest.mark.parametrize("name", ZOO)
def test_a_random_element_changes_no_output(name: str) -> None:
    make, inputs = ZOO[name]
    torch.manual_seed(0)
    model = exact(make())
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    before = flat(copy.deepcopy(model)(*arguments))
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(flat(rescaled(*arguments)), before, rtol=1e-10, atol=1e-12)
    moved = [
        p for p, q in zip(rescaled.parameters(), model.parameters(), strict=True) if not torch.equal(p, q)
    ]
    assert bool(moved) == bool(len(spec))


def flat(output: object) -> torch.Tensor:
    first = output[0] if isinstance(output, tuple) else output
    assert isinstance(first, torch.Tensor)
    return first


@pytest.mark.parametrize("name", ["arch1", "u-net", "attention by hand", "grouped and depthwise"])
def test_unknowns_for_every_entry_find_no_more(name: str) -> None:
    make, inputs = ZOO[name]
    model = exact(make())
    arguments = inputs(torch.Generator().manual_seed(2))
    assert len(discover(model, arguments)) == len(discover(model, arguments, ansatz="element"))


def test_an_operation_without_a_rule_pins_what_it_touches_and_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            odd = torch.fft.fft(torch.relu(self.first(x))).real
            return self.head(torch.relu(self.second(odd)))

    spec = discover(Odd(), (torch.rand(5, 3),))
    assert len(spec) == 4  # of the layer behind it
    assert any("fft" in name for name in spec.unknown)
