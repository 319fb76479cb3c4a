"""Networks that mix tokens by a linear layer over them: gMLP, ResMLP."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from tests.support.zoo.animal import Animal, rand

Activation = Callable[[], nn.Module]


class SpatialGate(nn.Module):
    """Half of the channels, normalized and mixed along the tokens, times the other half."""

    def __init__(self, channels: int, tokens: int, *, causal: bool = False) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(channels // 2), nn.Linear(tokens, tokens)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        kept, gate = x.chunk(2, dim=-1)
        weight, gate = self.mix.weight, self.norm(gate).transpose(1, 2)
        if self.causal:
            later = torch.ones(weight.shape, dtype=torch.bool).triu(1)
            weight = weight.masked_fill(later, 0.0)
        return kept * nn.functional.linear(gate, weight, self.mix.bias).transpose(1, 2)


class GatedBlock(nn.Module):
    def __init__(self, width: int, tokens: int, activation: Activation, *, causal: bool) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.activation, self.gate = activation(), SpatialGate(2 * width, tokens, causal=causal)
        self.down = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.gate(self.activation(self.up(self.norm(x)))))


class Affine(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain + self.shift


class ResidualBlock(nn.Module):
    """Two branches, each with a learned scale per channel behind it."""

    def __init__(self, width: int, tokens: int, activation: Activation) -> None:
        super().__init__()
        self.before, self.mix, self.between = Affine(width), nn.Linear(tokens, tokens), Affine(width)
        self.up, self.activation, self.down = nn.Linear(width, 3), activation(), nn.Linear(3, width)
        self.first, self.second = (nn.Parameter(torch.ones(width)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first * self.mix(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.second * self.down(self.activation(self.up(self.between(x))))


class Mixing(nn.Module):
    """Blocks between an embedding of patches and a classifier of the mean over tokens."""

    def __init__(self, blocks: list[nn.Module], width: int, *, normalized: bool) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Linear(3, width), nn.Sequential(*blocks)
        self.normalized, self.head = normalized, nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        x = layer_norm(x, x.shape[-1:], eps=1e-30) if self.normalized else x
        return self.head(x.mean(dim=1))


def gmlp(
    depth: int = 1,
    width: int = 4,
    tokens: int = 3,
    activation: Activation = nn.ReLU,
    *,
    causal: bool = False,
) -> nn.Module:
    """A gMLP (Liu, Dai, So, Le, *Pay Attention to MLPs*, arXiv:2105.08050)."""
    blocks: list[nn.Module] = [GatedBlock(width, tokens, activation, causal=causal) for _ in range(depth)]
    return Mixing(blocks, width, normalized=True)


def resmlp(depth: int = 1, width: int = 3, tokens: int = 3, activation: Activation = nn.ReLU) -> nn.Module:
    """A ResMLP (Touvron et al., arXiv:2105.03404)."""
    blocks: list[nn.Module] = [ResidualBlock(width, tokens, activation) for _ in range(depth)]
    return Mixing(blocks, width, normalized=False)


MIXERS: dict[str, Animal] = {
    "gmlp": Animal(gmlp, rand(4, 3, 3)),
    "gmlp, gelu": Animal(lambda: gmlp(activation=nn.GELU), rand(4, 3, 3), slow=True),
    "gmlp, causal": Animal(lambda: gmlp(causal=True), rand(4, 3, 3), slow=True),
    "gmlp, two blocks": Animal(lambda: gmlp(2), rand(4, 3, 3), slow=True),
    "resmlp": Animal(resmlp, rand(4, 3, 3)),
    "resmlp, gelu, two blocks": Animal(lambda: resmlp(2, activation=nn.GELU), rand(4, 3, 3), slow=True),
}
