"""Networks that mix tokens: the work grows with their depth, and not with tokens times channels."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim.symmetry import solve
from symoptim.symmetry.discover import discover
from symoptim.symmetry.interpret import interpret
from symoptim.symmetry.rules import RULES
from symoptim.symmetry.system import System
from symoptim.symmetry.trace import trace
from tests.support.zoo.mixers import gmlp, resmlp

MAKES = [gmlp, lambda *sizes: gmlp(*sizes, causal=True), resmlp]
of_every_kind = pytest.mark.parametrize("make", MAKES, ids=["gmlp", "causal gmlp", "resmlp"])
Make = Callable[[int, int, int], nn.Module]


def system_of(model: nn.Module, tokens: int) -> System:
    return interpret([trace(model, (torch.rand(2, tokens, 3),), known=RULES)]).system


def sizes_of(system: System) -> tuple[int, int]:
    """Unknowns, and entries of all equations."""
    return system.count, sum(ids.numel() for _, ids in system.rows)


@of_every_kind
def test_every_further_block_adds_as_much_as_the_one_before(make: Make) -> None:
    sizes = [torch.tensor(sizes_of(system_of(make(depth, 8, 6), 6))) for depth in (1, 2, 3, 4)]
    steps = [other - one for one, other in itertools.pairwise(sizes)]
    assert all(torch.equal(step, steps[0]) for step in steps)


@of_every_kind
def test_there_are_unknowns_and_equations_by_row_and_by_column(make: Make) -> None:
    count, entries = sizes_of(system_of(make(1, 32, 24), 24))
    more, many_more = sizes_of(system_of(make(1, 64, 48), 48))
    assert more < 2.1 * count
    assert many_more < 2.1 * entries


@of_every_kind
def test_nothing_is_eliminated_one_by_one(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_eliminate_one", None)
    for activation in (nn.ReLU, nn.GELU):
        model = make(2, 8, 6)
        for block in model.blocks:
            block.activation = activation()
        assert len(discover(model, (torch.rand(2, 6, 3),)))
