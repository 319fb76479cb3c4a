"""Constants that have other values in other passes count as unknown; others are known."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim import discover
from symoptim.symmetry.constants import changing_constants, value_of, with_unknown
from symoptim.symmetry.record import record
from tests.support.other_paths import W, own, x
from tests.support.same_operations import ONE, SAME_OPERATIONS

CHANGING = ("numbers that grow", "an order by length", "noise in an attribute", "noise in a list")


@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_from_call_to_call_is_not_known(name: str) -> None:
    case = SAME_OPERATIONS[name]
    spec = discover(case.make(), case.example)
    assert len(spec) <= 1
    assert any("differ between calls" in sentence for sentence in spec.paths)


def test_what_stays_the_same_is_known() -> None:
    def pairs(m: Any, x: Tensor) -> Tensor:
        return m.b(m.a(x).relu()[..., torch.tensor([1, 0, 3, 2, 5, 4])] + torch.tensor([0.0]))

    spec = discover(own(pairs, **ONE)(), (x(5, W),))
    assert len(spec) == 6
    assert not spec.paths


def test_constants_are_compared_by_where_they_are_taken() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.tensor([1.0]) + torch.tensor([float(len(x))])

    one, other = (record(Adds(), (torch.zeros(size),)) for size in (2, 3))
    changing = changing_constants([one, other])
    assert changing == {value_of(torch.tensor([2.0])), value_of(torch.tensor([3.0]))}
    kinds = [leaf.kind for leaf in with_unknown(one, changing).leaves]
    assert sorted(kinds) == ["constant", "input", "input"]
    assert not changing_constants([one, one])
