"""What is stepped: lists of shapes, each with the geometry of its filters.

    resnet50   161 tensors, 25.6 M   convolutions of all sizes, and many short vectors between them
    gpt2       148 tensors, 124 M    a small GPT; its embedding is plain and a third of it
    gpt-1.3b   145 tensors, 1.31 B   larger than any cache, in few large tensors
    tiny      1000 tensors, 1.02 M   nothing but overhead
    matrix       1 tensor, 268 M     16384 x 16384: nothing but bandwidth
    segnet      77 tensors, 29.5 M   the paper's network for scenes

Those that are networks can be made, so that the full metric, which needs their symmetries, steps them too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from symoptim.bench.networks import GPT2, resnet50
from symoptim.errors import OptionError
from symoptim.models.segnet import SegNet
from symoptim.optim.param_groups import param_groups
from symoptim.routing import Geometry

Network = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
"""Makes a model, and inputs to find its symmetries with."""


class Weight(NamedTuple):
    """Shape of a tensor, what its filters are, and the axis that counts outputs."""

    shape: tuple[int, ...]
    geometry: Geometry = "rows"
    axis: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A list of tensors to step; ``network`` makes the model they are of, where they are of one."""

    name: str
    title: str
    weights: tuple[Weight, ...]
    network: Network | None = None

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(prod(weight.shape) for weight in self.weights)


def weights_of(model: nn.Module, overrides: Mapping[str, Geometry] | None = None) -> tuple[Weight, ...]:
    """Shapes of a model's parameters in its order, with the roles that layers or ``overrides`` give them.

    >>> weights_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)))
    (Weight(shape=(4, 3), geometry='rows', axis=0), Weight(shape=(4,), geometry='plain', axis=0), \
Weight(shape=(2, 4), geometry='columns', axis=0))
    """
    return tuple(
        Weight(tuple(one.parameter.shape), one.role.geometry, one.role.axis)
        for one in param_groups(model, overrides=overrides).routed
    )


def gpt_shapes(layers: int = 24, width: int = 2048, vocabulary: int = 50257) -> tuple[Weight, ...]:
    """A GPT without biases: in every block two gains, two maps of attention and two of the network."""
    gain = Weight((width,), "plain")
    maps = [Weight((out * width, inside * width)) for out, inside in ((3, 1), (1, 1), (4, 1), (1, 4))]
    return (Weight((vocabulary, width), "plain"), *([gain, *maps, gain] * layers))


def _network_case(
    name: str, title: str, network: Network, overrides: Mapping[str, Geometry] | None = None
) -> Case:
    with torch.device("meta"):
        model, _ = network()
    return Case(name=name, title=title, weights=weights_of(model, overrides), network=network)


def _make_resnet50() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return resnet50(), (torch.rand(2, 3, 64, 64),)


def _make_gpt2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return GPT2(), (torch.randint(50257, (2, 16)),)


def _make_segnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return SegNet(), (torch.rand(2, 3, 64, 64),)


CASES: Mapping[str, Callable[[], Case]] = {
    "resnet50": lambda: _network_case("resnet50", "ResNet-50", _make_resnet50),
    # Its output map is its embedding, so that the linear map registered last is a hidden one.
    "gpt2": lambda: _network_case("gpt2", "GPT-2, 124 M", _make_gpt2, {"h.11.mlp_proj": "rows"}),
    "gpt-1.3b": lambda: Case(name="gpt-1.3b", title="GPT, 1.3 B", weights=gpt_shapes()),
    "tiny": lambda: Case(name="tiny", title="1,000 matrices of 32 x 32", weights=(Weight((32, 32)),) * 1000),
    "matrix": lambda: Case(
        name="matrix", title="one matrix of 16384 x 16384", weights=(Weight((2**14, 2**14)),)
    ),
    "segnet": lambda: _network_case("segnet", "SegNet", _make_segnet),
}
"""Makers of all cases, by name."""


def case_named(name: str) -> Case:
    """A case by name.

    Args:
        name: one of :data:`CASES`.

    Returns:
        The case.

    Raises:
        OptionError: there is none of that name.

    >>> len(case_named("resnet50").weights), case_named("gpt-1.3b").elements
    (161, 1310984192)
    """
    if name not in CASES:
        raise OptionError(f"unknown case '{name}'; choose from {', '.join(CASES)}")
    return CASES[name]()
