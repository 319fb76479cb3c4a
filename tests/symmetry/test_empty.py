"""Operations of which nothing comes out in the example."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from symoptim.errors import PathWarning
from symoptim.symmetry.discover import discover
from symoptim.symmetry.interpret import interpret
from symoptim.symmetry.record import record
from symoptim.symmetry.rules import RULES
from symoptim.symmetry.trace import trace
from tests.support.zoo.animal import Lambda, weight


def test_an_empty_batch_says_nothing_of_a_network() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    findings = interpret([trace(model, (torch.zeros(0, 3),), known=RULES)])
    assert findings.system.pins > 0


def test_an_example_without_rows_is_warned_of() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.warns(PathWarning, match=r"has no entries \(a tensor of shape \(0, 3\)\).*at least one"):
        assert len(discover(model, (torch.zeros(0, 3),))) == 0
    assert len(discover(model, (torch.rand(2, 3),), inputs=[(torch.zeros(0, 3),)])) == 4


def experts(self: nn.Module, x: Tensor) -> Tensor:
    """Rows go to one of two layers by the sign of their sum."""
    first = x.sum(dim=-1) > 0
    found = torch.zeros(len(x), 2, dtype=x.dtype)
    found = found.index_put((first.nonzero()[:, 0],), self.one(x[first]))
    return found.index_put(((~first).nonzero()[:, 0],), relu(self.other(x[~first])))


def test_a_layer_that_no_row_reaches_is_pinned_and_one_that_some_pass_reaches_is_not() -> None:
    model = Lambda(
        experts, one=nn.Linear(3, 2), other=nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    )
    low, high = -torch.ones(4, 3), torch.ones(4, 3)
    unseen, seen = (interpret([record(model, (one,)) for one in passes]) for passes in ([high], [high, low]))
    assert unseen.system.pins > seen.system.pins


def test_an_empty_part_of_a_parameter_says_nothing_of_the_rest() -> None:
    model = Lambda(
        lambda self, x: self.head(relu(torch.cat([self.prefix[:0], x]) @ self.prefix)),
        prefix=weight(3, 3),
        head=nn.Linear(3, 2),
    )
    assert len(discover(model, (torch.randn(5, 3),))) == 3
