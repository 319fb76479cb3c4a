"""Joining and looking up, against the true dimension."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from symoptim.symmetry.discover import discover
from tests.support.oracle import exact, true_dimension
from tests.support.zoo.animal import Lambda, rand, together, tokens, weight


def halves(self: nn.Module, x: Tensor) -> Tensor:
    """Attention whose keys come in two parts, the first of which has places of its own."""
    key = torch.cat([self.one(x) * torch.arange(1, 4)[:, None].to(x), self.two(x)], dim=-1)
    scores = self.query(x) @ key.transpose(-1, -2)
    return scores.softmax(dim=-1) @ x


def test_a_bias_that_a_softmax_does_not_see_is_free_in_one_of_two_joined_parts() -> None:
    model = exact(Lambda(halves, one=nn.Linear(4, 2), two=nn.Linear(4, 2), query=nn.Linear(4, 4)))
    inputs = rand(2, 3, 4)
    spec = discover(model, inputs(torch.Generator().manual_seed(2)))
    assert len(spec) == 4 + 2 == true_dimension(model, inputs)  # scores, and biases of the second part


def test_tensors_without_what_is_put_off_are_joined_to_one_with_a_bias() -> None:
    model = exact(
        Lambda(
            lambda self, x: self.head(relu(torch.cat([self.one(x), x, self.two(x)], dim=-1))),
            one=nn.Linear(3, 2),
            two=nn.Linear(3, 2, bias=False),
            head=nn.Linear(7, 2),
        )
    )
    inputs = rand(8, 3)
    assert (
        len(discover(model, inputs(torch.Generator().manual_seed(2)))) == 4 == true_dimension(model, inputs)
    )


def test_a_table_looked_up_along_a_later_axis_is_tied_along_it_alone() -> None:
    model = exact(
        Lambda(
            lambda self, x, places: self.head(relu(self.first(x)) * self.table[:, places].mean(dim=(1, 2))),
            first=nn.Linear(3, 4, bias=False),
            table=weight(4, 5),
            head=nn.Linear(4, 2),
        )
    )
    inputs = together(rand(8, 3), tokens(5, 2, 3))
    spec = discover(model, inputs(torch.Generator().manual_seed(2)))
    assert not spec.unknown
    assert len(spec) == 8  # a unit's row of the layer, and its row of the table


def test_a_number_may_be_scattered_into_zeros() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        hidden = relu(self.first(x))
        best = hidden.topk(1, dim=-1).indices
        return self.head(hidden * torch.zeros_like(hidden).scatter(1, best, 1.0))

    model = exact(Lambda(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2)))
    spec = discover(model, (torch.randn(8, 3, dtype=torch.float64),))
    assert not spec.unknown
    assert len(spec) == 1  # which one is largest ties them all
