"""Discovery on the zoo: what is found is true, and all that is true is found."""

import copy

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover
from tests.support.oracle import true_dimension
from tests.support.zoo import caught, for_half_of_them, group_of

GAPS = {
    "siamese": (6, 8, "a bias that is subtracted from itself is not seen to cancel"),
    "hard experts": (4, 8, "which expert is looked up depends on values: all of them scale alike"),
    "vision transformer": (17, 18, "sums at places nobody reads still have to be homogeneous"),
    "gmlp, causal": (12, 15, "what a mask sets to zero in a weight is not seen to be of no use"),
    "positions beyond the input": (4, 10, "what only a longer input reads goes with the rest, on purpose"),
}
"""Found, true, and why there is a difference."""


@for_half_of_them
def test_the_whole_group_is_found(name: str) -> None:
    animal, spec = caught(name), group_of(name)
    found, true, _ = GAPS.get(name, (len(spec), len(spec), ""))
    assert not spec.unknown
    assert len(spec) == found
    assert true_dimension(animal.model, animal.inputs) == true


def test_no_gap_is_a_group_that_is_too_large() -> None:
    assert all(found < true for found, true, _ in GAPS.values())


@for_half_of_them
def test_a_random_element_changes_no_output(name: str) -> None:
    (model, arguments, _), spec = caught(name), group_of(name)
    before = copy.deepcopy(model)(*arguments)
    rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(rescaled(*arguments), before, rtol=1e-10, atol=1e-12)
    moved = [
        p for p, q in zip(rescaled.parameters(), model.parameters(), strict=True) if not torch.equal(p, q)
    ]
    assert bool(moved) == bool(len(spec))


@pytest.mark.parametrize(
    "name",
    [
        *("arch1", "u-net", "attention by hand", "grouped and depthwise"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gmlp", "resmlp", "mlp mixer")),
    ],
)
def test_unknowns_for_every_entry_find_no_more(name: str) -> None:
    animal = caught(name)
    assert len(group_of(name)) == len(discover(animal.model, animal.arguments, ansatz="element"))


def test_an_operation_without_a_rule_pins_what_it_touches_and_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            odd = torch.special.i0e(torch.relu(self.first(x)))
            return self.head(torch.relu(self.second(odd)))

    spec = discover(Odd(), (torch.rand(5, 3),))
    assert len(spec) == 4  # of the layer behind it
    assert any("special_i0e" in name for name in spec.unknown)
