"""Small networks of every kind, each with an input: what discovery is tried on."""

import functools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.oracle import exact
from tests.support.zoo.animal import Animal as Animal
from tests.support.zoo.animal import Inputs
from tests.support.zoo.attention import ATTENTION
from tests.support.zoo.composed import COMPOSED
from tests.support.zoo.convolutional import CONVOLUTIONAL
from tests.support.zoo.mixers import MIXERS
from tests.support.zoo.normalized import NORMALIZED
from tests.support.zoo.perceptrons import PERCEPTRONS
from tests.support.zoo.routed import ROUTED
from tests.support.zoo.signals import SIGNALS
from tests.support.zoo.transformers import TRANSFORMERS

ZOO: dict[str, Animal] = {
    **PERCEPTRONS,
    **COMPOSED,
    **NORMALIZED,
    **CONVOLUTIONAL,
    **SIGNALS,
    **ATTENTION,
    **TRANSFORMERS,
    **MIXERS,
    **ROUTED,
}
"""All of them by name."""


def _animals(every: int) -> pytest.MarkDecorator:
    """All animals, of which ``make test`` has one in so many, but for slow ones."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.slow] * (animal.slow or place % every > 0))
            for place, (name, animal) in enumerate(ZOO.items())
        ],
    )


for_every_animal, for_half_of_them, for_some_animals = _animals(1), _animals(2), _animals(4)
"""All, half and a quarter of them in ``make test``; always all in ``make test-all``."""


class Caught(NamedTuple):
    """An animal ready to be looked at: in float64, without an eps to be felt."""

    model: nn.Module
    arguments: tuple[Tensor, ...]
    inputs: Inputs


def caught(name: str) -> Caught:
    """The animal of that name, always the same."""
    make, inputs, _ = ZOO[name]
    torch.manual_seed(0)
    return Caught(exact(make()), inputs(torch.Generator().manual_seed(2)), inputs)


@functools.cache
def group_of(name: str) -> SymmetrySpec:
    """What discovery finds on an animal."""
    animal = caught(name)
    return discover(animal.model, animal.arguments)
