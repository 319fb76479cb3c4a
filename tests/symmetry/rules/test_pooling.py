"""Pools that slide over features, whose scales differ."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool1d, max_pool2d, relu

from symoptim.symmetry.discover import discover
from tests.support.oracle import exact, true_dimension
from tests.support.sampling import one_in
from tests.support.soundness import changes
from tests.support.zoo.animal import Lambda, rand


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


def mean(x: Tensor, **options: Any) -> Tensor:
    return avg_pool2d(x, 3, 1, 1, **{"count_include_pad": False, **options})


DIFFERENCES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "from its mean": (lambda y: mean(y) - y, 8),
    "of a mean": (lambda y: y - mean(y), 8),
    "the other way round": (lambda y: torch.rsub(mean(y), y), 8),
    "of twice the value": (lambda y: 2 * y - y, 4),
    "of the value and itself": (lambda y: y + y - y, 4),
    "of twice the mean": (lambda y: 2 * mean(y) - y, 4),
    "of the mean of twice the value": (lambda y: mean(2 * y) - y, 4),
    "of a mean with zeros around": (lambda y: mean(y, count_include_pad=True) - y, 4),
    "of a mean by another number": (lambda y: mean(y, divisor_override=4) - y, 4),
    "twice": (lambda y: torch.sub(mean(y), y, alpha=2), 4),
    "a sum": (lambda y: mean(y) + y, 4),
}


@pytest.mark.parametrize("name", one_in(2, DIFFERENCES))
def test_a_bias_is_dead_in_a_difference_from_its_mean(name: str) -> None:
    function, number = DIFFERENCES[name]
    model = exact(
        Lambda(
            lambda self, x: self.head(function(self.first(x))),
            first=nn.Conv2d(3, 4, 1),
            head=nn.Conv2d(4, 2, 1),
        )
    )
    inputs = rand(2, 3, 4, 4)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert len(spec) == number == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)


def test_a_shift_of_a_normalization_is_dead_there_too() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        normalized = self.norm(x)
        return self.head(x + (mean(normalized) - normalized))

    model = exact(Lambda(forward, norm=nn.GroupNorm(1, 4), head=nn.Conv2d(4, 2, 1)))
    inputs = rand(2, 4, 4, 4)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert len(spec) == 4 == true_dimension(model, inputs)
    assert not changes(spec, model, arguments)
