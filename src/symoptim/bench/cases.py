"""What is stepped: lists of shapes, each with the geometry of its filters.

    resnet50   161 tensors, 25.6 M   convolutions of all sizes, and many short vectors between them
    gpt2       148 tensors, 124 M    a small GPT; its embedding is plain and a third of it
    gpt-1.3b   145 tensors, 1.31 B   larger than any cache, in few large tensors
    tiny      1000 tensors, 1.02 M   nothing but overhead
    matrix       1 tensor, 268 M     16384 x 16384: nothing but bandwidth
    segnet      77 tensors, 29.5 M   the paper's network for scenes

The full metric needs symmetries, and so a network: it is measured where the case is one. A model of the
user's own is a case too (:func:`case_of`).
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from symoptim.bench.networks import GPT2, resnet50
from symoptim.errors import OptionError
from symoptim.models.segnet import SegNet
from symoptim.optim.param_groups import param_groups
from symoptim.routing import Geometry


class Example(NamedTuple):
    """A model, and arguments it is called with."""

    model: nn.Module
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}


class Weight(NamedTuple):
    """Shape of a tensor, what its filters are, and the axis that counts outputs."""

    shape: tuple[int, ...]
    geometry: Geometry = "rows"
    axis: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A list of tensors to step; ``network`` makes the model they belong to, where there is one."""

    name: str
    title: str
    weights: tuple[Weight, ...]
    network: Callable[[], Example] | None = field(default=None, compare=False)
    is_own: bool = False
    """A model of the user's, which may change between runs: it is always measured anew."""

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(prod(weight.shape) for weight in self.weights)


def is_stepped(parameter: nn.Parameter) -> bool:
    """Whether a step moves anything of a parameter."""
    return parameter.requires_grad and parameter.numel() > 0


def weights_of(model: nn.Module, overrides: Mapping[str, Geometry] | None = None) -> tuple[Weight, ...]:
    """Shapes of a model's trainable parameters, with the roles that layers or ``overrides`` give them.

    >>> weights_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)))
    (Weight(shape=(4, 3), geometry='rows', axis=0), Weight(shape=(4,), geometry='plain', axis=0), \
Weight(shape=(2, 4), geometry='columns', axis=0))
    """
    return tuple(
        Weight(tuple(one.parameter.shape), one.role.geometry, one.role.axis)
        for one in param_groups(model, overrides=overrides).routed
        if is_stepped(one.parameter)
    )


def case_of(name: str, example: Example) -> Case:
    """A model of the user's own as a case.

    Raises:
        OptionError: it has no parameters that require gradients.

    >>> case_of("my_model.py:make", Example(nn.Linear(3, 2), (torch.rand(1, 3),))).elements
    8
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that stay plain: here nothing is trained
        weights = weights_of(example.model)
    if not weights:
        raise OptionError(f"{name} has no parameters that require gradients: there is nothing to step")
    return Case(name=name, title=name, weights=weights, network=lambda: example, is_own=True)


def gpt_shapes(layers: int = 24, width: int = 2048, vocabulary: int = 50257) -> tuple[Weight, ...]:
    """A GPT without biases: in every block two gains, two maps of attention and two of the network."""
    gain = Weight((width,), "plain")
    maps = [Weight((out * width, inside * width)) for out, inside in ((3, 1), (1, 1), (4, 1), (1, 4))]
    return (Weight((vocabulary, width), "plain"), *([gain, *maps, gain] * layers))


def _network_case(
    name: str, title: str, network: Callable[[], Example], overrides: Mapping[str, Geometry] | None = None
) -> Case:
    with torch.device("meta"):
        model = network().model
    return Case(name=name, title=title, weights=weights_of(model, overrides), network=network)


CASES: dict[str, Callable[[], Case]] = {
    "resnet50": lambda: _network_case(
        "resnet50", "ResNet-50", lambda: Example(resnet50(), (torch.rand(2, 3, 64, 64),))
    ),
    # Its output map is its embedding, so that the linear map registered last is a hidden one.
    "gpt2": lambda: _network_case(
        "gpt2",
        "GPT-2, 124 M",
        lambda: Example(GPT2(), (torch.randint(50257, (2, 16)),)),
        {"h.11.mlp_proj": "rows"},
    ),
    "gpt-1.3b": lambda: Case(name="gpt-1.3b", title="GPT, 1.3 B", weights=gpt_shapes()),
    "tiny": lambda: Case(name="tiny", title="1,000 matrices of 32 x 32", weights=(Weight((32, 32)),) * 1000),
    "matrix": lambda: Case(
        name="matrix", title="one matrix of 16384 x 16384", weights=(Weight((2**14, 2**14)),)
    ),
    "segnet": lambda: _network_case(
        "segnet", "SegNet", lambda: Example(SegNet(), (torch.rand(2, 3, 64, 64),))
    ),
}
"""Makers of all built-in cases, by name."""


def case_named(name: str) -> Case:
    """A built-in case by name.

    Raises:
        OptionError: there is none of that name.

    >>> len(case_named("resnet50").weights), case_named("gpt-1.3b").elements
    (161, 1310984192)
    """
    if name not in CASES:
        raise OptionError(f"unknown case '{name}'; choose from {', '.join(CASES)}")
    return CASES[name]()
