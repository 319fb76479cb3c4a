"""What a network of the zoo is, and the parts they are built from."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

Inputs = Callable[[torch.Generator], tuple[Tensor, ...]]


class Animal(NamedTuple):
    """A network, its inputs drawn from a generator, and whether only `make test-all` looks at it."""

    make: Callable[[], nn.Module]
    inputs: Inputs
    slow: bool = False


def rand(*shape: int, scale: float = 1.0) -> Inputs:
    """Inputs of that shape."""
    return lambda generator: (scale * torch.randn(shape, generator=generator, dtype=torch.float64),)


def tokens(vocabulary: int, *shape: int) -> Inputs:
    """Integers below a number."""
    return lambda generator: (torch.randint(vocabulary, shape, generator=generator),)


def places(size: int, number: int) -> Inputs:
    """Different integers below a size."""
    return lambda generator: (torch.randperm(size, generator=generator)[:number],)


def together(*inputs: Inputs) -> Inputs:
    """Several inputs."""
    return lambda generator: tuple(one for draw in inputs for one in draw(generator))


class Lambda(nn.Module):
    """Modules and parameters by name, and a function of them and the input."""

    def __init__(self, function: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


def weight(*shape: int) -> nn.Parameter:
    """A parameter of that shape."""
    return nn.Parameter(torch.randn(shape))
