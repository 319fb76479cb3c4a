"""Pools that slide over features, whose scales differ."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool1d, max_pool2d, relu

from symmetry.oracle import exact, true_dimension
from symmetry.soundness import changes
from symmetry.zoo.animal import Lambda, rand
from symoptim.symmetry.discover import discover


def pooled(pool: Callable[[Tensor], Tensor], width: int) -> nn.Module:
    """Four units, a pool over them, and a head that reads it."""
    return exact(
        Lambda(
            lambda self, x: self.head(pool(relu(self.first(x)))),
            first=nn.Linear(3, 4),
            head=nn.Linear(width, 2),
        )
    )


def test_a_dilated_pool_over_features_ties_no_neighbors_it_does_not_compare() -> None:
    model = pooled(lambda hidden: max_pool1d(hidden, 2, stride=1, dilation=2), 2)
    arguments = (torch.randn(8, 3, dtype=torch.float64),)
    spec = discover(model, arguments)
    assert not changes(spec, model, arguments)
    assert len(spec) == 0  # two are true, the first with the third and the second with the fourth
    assert any("max_pool1d" in name for name in spec.unknown)


@pytest.mark.parametrize(("kernel", "width", "number"), [(2, 3, 3), (3, 2, 2)])
def test_padding_around_features_pins_nothing(kernel: int, width: int, number: int) -> None:
    model = pooled(lambda hidden: max_pool1d(hidden, kernel, padding=1), width)
    inputs = rand(8, 3)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.unknown
    assert len(spec) == number == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)


@pytest.mark.parametrize("pool", [avg_pool2d, max_pool2d])
def test_a_pool_over_an_odd_number_of_places_leaves_features_apart(pool: Callable[..., Tensor]) -> None:
    """As Funnel pools: features are an axis it slides over, with windows of size one."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        hidden = relu(self.first(x))[:, None]
        return self.head(pool(hidden, (2, 1), stride=(2, 1), ceil_mode=True)[:, 0])

    model = exact(Lambda(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 2)))
    inputs = rand(3, 5, 2)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.unknown
    assert len(spec) == 3 == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)


def test_a_window_that_is_rounded_up_ties_only_what_is_in_it() -> None:
    model = pooled(lambda hidden: max_pool1d(hidden, 3, ceil_mode=True), 2)
    inputs = rand(8, 3)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert len(spec) == 2 == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)
