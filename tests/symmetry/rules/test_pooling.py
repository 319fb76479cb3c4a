"""Pools that slide over features, whose scales differ."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, relu

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
