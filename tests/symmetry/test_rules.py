"""Single operations between two layers: what they let through, and what they must not."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover
from symoptim.symmetry.form import Form
from symoptim.symmetry.solve import null_space
from symoptim.symmetry.system import System
from tests.support.zoo.animal import Lambda, weight

PLACES = torch.tensor([3, 0, 2, 1])
MASK = torch.tensor([[True, False, False, True], [False, True, True, True]]).repeat(4, 1)


def around(function: Callable[..., Tensor]) -> nn.Module:
    """Two layers with biases and 4 hidden units, and a function of these between."""
    return Lambda(
        lambda self, x, *others: self.head(function(torch.relu(self.first(x)), *others)),
        first=nn.Linear(3, 4),
        head=nn.Linear(4, 2),
    ).double()


@pytest.mark.parametrize(
    ("function", "number"),
    [
        (lambda h: h[:, PLACES], 4),
        (lambda h: h.index_select(1, PLACES), 4),
        (lambda h: h.gather(1, PLACES.expand(8, 4)), 4),
        (lambda h: h[:, torch.randperm(4)], 1),
        (lambda h: h[:, torch.empty(4, dtype=torch.long).clamp(0, 3)], 1),  # whatever was in memory
        (lambda h: h[:, (h.sum() * 0).long().expand(4)], 0),
        (lambda h: h.bool().to(h), 4),
        (lambda h: h.long().to(h), 0),
        (lambda h: (h.view(torch.int64) > 10).to(h), 0),
        (lambda h: h.index_put((MASK,), torch.zeros((), dtype=h.dtype)), 4),
        (lambda h: h.index_put((MASK,), torch.ones((), dtype=h.dtype)), 0),
        (lambda h: h.scatter(1, PLACES.expand(8, 4), h, reduce="multiply"), 0),
        (lambda h: h[MASK].sum() + h, 1),  # recorded: how many it picks is known only then
    ],
)
def test_hidden_units_that_stay_free(function: Callable[..., Tensor], number: int) -> None:
    model, inputs = around(function), (torch.randn(8, 3, dtype=torch.float64),)
    assert len(discover(model, inputs)) == number


def test_places_that_are_an_input_tie_what_they_may_pick() -> None:
    model = around(lambda h, places: h[:, places])
    assert len(discover(model, (torch.randn(8, 3, dtype=torch.float64), PLACES))) == 1


class Wandering(nn.Module):
    """Places that are one further in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("places", PLACES.clone())

    def forward(self, x: Tensor) -> Tensor:
        self.places.copy_((self.places + 1) % 4)
        return self.head(torch.relu(self.first(x))[:, self.places])


def test_places_that_are_written_to_may_pick_anything() -> None:
    assert len(discover(Wandering(), (torch.randn(8, 3),))) == 1


@pytest.mark.parametrize(
    "positions",
    [lambda self, length: self.positions[:length], lambda self, length: self.positions[torch.arange(length)]],
)
def test_a_group_found_on_a_short_input_holds_on_a_longer_one(positions: Callable[..., Tensor]) -> None:
    model = Lambda(
        lambda self, x: self.head(layer_norm(self.first(x) + positions(self, x.shape[1]), [4], eps=1e-30)),
        first=nn.Linear(3, 4),
        positions=weight(6, 4),
        head=nn.Linear(4, 2),
    ).double()
    spec = discover(model, (torch.randn(2, 3, 3, dtype=torch.float64),))
    assert len(spec) == 1
    assert certify(spec, model, (torch.randn(2, 6, 3, dtype=torch.float64),)).holds


def test_a_mask_over_several_axes_says_nothing_about_the_order_of_what_is_written() -> None:
    model = Lambda(
        lambda self, x: self.head(
            torch.relu(self.first(x)).index_put((MASK[:1].repeat(2, 1),), self.written)
        ),
        first=nn.Linear(3, 4),
        head=nn.Linear(4, 2),
        written=weight(4),
    ).double()
    inputs = (torch.randn(2, 3, dtype=torch.float64),)
    assert certify(discover(model, inputs), model, inputs).holds


def test_a_sum_as_the_gain_of_a_norm_is_seen_whole() -> None:
    model = Lambda(
        lambda self, x: self.head(layer_norm(x, [3], self.gain + self.number)),
        gain=weight(3),
        number=weight(1),
        head=nn.Linear(3, 2),
    ).double()
    inputs = (torch.randn(8, 3, dtype=torch.float64),)
    spec = discover(model, inputs)
    assert len(spec) == 1
    assert certify(spec, model, inputs).holds


@pytest.mark.parametrize(
    ("shapes", "free"),
    [
        ([(3, 4, 1), (3, 1, 5)], 4 + 5 + 2),  # one matrix, and a step to each of the other two
        ([(3, 4, 1), (1, 1, 5)], 4 + 5),
        ([(3, 4, 1), (3, 1, 5), (3, 4, 5)], 12 + 15 + 20),
        ([(3, 4, 1), (3, 1, 5), (3, 1, 1)], 4 + 5 + 1 + 2 * 2),
    ],
)
def test_rows_and_columns_of_a_stack_change_together(shapes: list[tuple[int, ...]], free: int) -> None:
    system = System()
    terms = tuple(system.fresh(*shape) for shape in shapes)
    unknowns = system.count
    system.const_along(Form((3, 4, 5), terms), [0])
    space = null_space(system.count, system.rows, torch.arange(system.count) < unknowns)
    assert len(space.free) == free


def grouped_experts(between: Callable[[Tensor], Tensor]) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Rows sorted by expert, two products for all experts, and a function of the hidden rows between them."""

    def forward(self: nn.Module, x: Tensor, ends: Tensor) -> Tensor:
        hidden = torch._grouped_mm(torch.relu(self.first(x)), self.up, ends)
        return torch._grouped_mm(between(hidden), self.down, ends)

    model = Lambda(forward, first=nn.Linear(3, 8), up=weight(2, 8, 16), down=weight(2, 8, 8))
    return model, (torch.randn(8, 3), torch.tensor([3, 8], dtype=torch.int32))


@pytest.mark.parametrize(
    ("between", "number"),
    [
        (lambda h: torch.relu(h[:, :8]) * h.chunk(2, dim=-1)[1], 2 * 2 * 8),  # units of each expert
        (lambda h: torch.nn.functional.silu(h[:, :8]) * h[:, 8:], 2 * 8),
        (lambda h: torch.relu(h[:, :8]) + h[:, 8:], 8),  # a sum is seen by all alike
        (lambda h: torch.relu(h[:, :8]).flip(0) * h[:, 8:], 8 + 2 * 8),  # one half meets any expert
    ],
)
def test_units_of_experts_of_a_grouped_product(between: Callable[[Tensor], Tensor], number: int) -> None:
    """Traced in bfloat16, tried in float32: torch has grouped products only there."""
    model, inputs = grouped_experts(between)
    spec = discover(copy.deepcopy(model).bfloat16(), (inputs[0].bfloat16(), inputs[1]))
    assert not spec.unknown
    assert len(spec) == 8 + number
    before = model(*inputs)
    torch.testing.assert_close(spec.rescale_(model, spec.random())(*inputs), before, rtol=1e-4, atol=1e-4)
