"""Small networks of every kind, each with an input: what discovery is tried on."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize, relu, scaled_dot_product_attention, silu

import symoptim
from symoptim.models.segnet import ConvolutionBlock, EncoderDecoder


class Animal(NamedTuple):
    """A network, and its inputs drawn from a generator."""

    make: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], tuple[Tensor, ...]]


def rand(*shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Inputs of that shape."""
    return lambda generator: (torch.randn(shape, generator=generator, dtype=torch.float64),)


def tokens(vocabulary: int, *shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Integers below a number."""
    return lambda generator: (torch.randint(vocabulary, shape, generator=generator),)


class Lambda(nn.Module):
    """Modules by name, and a function of them and the input."""

    def __init__(self, function: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


def small_arch(make: Callable[..., nn.Module]) -> nn.Module:
    """One of the paper's networks with 4 features per layer, which a pool makes 2."""
    return make(2, inputs=3, classes=2, width=4)


def residual_block(width: int) -> nn.Module:
    return Lambda(
        lambda self, x: relu(x + self.second(relu(self.norm(self.first(x))))),
        first=nn.Conv2d(width, width, 3, padding=1, bias=False),
        norm=nn.BatchNorm2d(width),
        second=nn.Conv2d(width, width, 3, padding=1, bias=False),
    )


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        residual_block(3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 2),
    )


def unet() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        top = relu(self.down(x))
        below = relu(self.up(relu(self.bottom(self.pool(top)))))
        return self.head(torch.cat([top, below], dim=1))

    return Lambda(
        forward,
        down=nn.Conv2d(1, 3, 3, padding=1),
        pool=nn.MaxPool2d(2),
        bottom=nn.Conv2d(3, 4, 3, padding=1),
        up=nn.ConvTranspose2d(4, 3, 2, stride=2),
        head=nn.Conv2d(6, 2, 1),
    )


def segnet() -> nn.Module:
    """Pools whose maxima are put back where they were; kernels are small, to fit into the images."""
    encoder = [ConvolutionBlock(inputs, 2, kernel=3, relu=True) for inputs in (3, 2)]
    decoder = [ConvolutionBlock(2, 2, kernel=3, relu=False) for _ in range(2)]
    return EncoderDecoder(encoder, decoder, nn.Conv2d(2, 2, 1))


def attention(*, bias: bool, fused: bool) -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (2, 2)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        if fused:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-1, -2) / 2**0.5
            mixed = scores.softmax(dim=-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(-2))

    parts = {name: nn.Linear(4, 4, bias=bias) for name in ("query", "key", "value", "out")}
    return Lambda(forward, **parts)


def gpt(*, bias: bool) -> nn.Module:
    def forward(self: nn.Module, places: Tensor) -> Tensor:
        x = self.embedding(places)
        x = x + self.attention(self.first(x))
        x = x + self.down(gelu(self.up(self.second(x))))
        return self.head(self.last(x))

    return Lambda(
        forward,
        embedding=nn.Embedding(5, 4),
        first=nn.LayerNorm(4, bias=bias),
        attention=attention(bias=bias, fused=True),
        second=nn.LayerNorm(4, bias=bias),
        up=nn.Linear(4, 6, bias=bias),
        down=nn.Linear(6, 4, bias=bias),
        last=nn.LayerNorm(4, bias=bias),
        head=nn.Linear(4, 3, bias=bias),
    )


def swiglu() -> nn.Module:
    return Lambda(
        lambda self, x: self.head(x + self.down(silu(self.gate(self.norm(x))) * self.up(self.norm(x)))),
        norm=nn.RMSNorm(4),
        gate=nn.Linear(4, 5, bias=False),
        up=nn.Linear(4, 5, bias=False),
        down=nn.Linear(5, 4, bias=False),
        head=nn.Linear(4, 2, bias=False),
    )


ZOO: dict[str, Animal] = {
    "arch1": Animal(lambda: small_arch(symoptim.models.arch1), rand(6, 3)),
    "arch2 training": Animal(lambda: small_arch(symoptim.models.arch2), rand(6, 3)),
    "arch2 evaluation": Animal(lambda: small_arch(symoptim.models.arch2).eval(), rand(6, 3)),
    "mlp": Animal(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), rand(8, 3)),
    "mlp, leaky": Animal(
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 3), nn.LeakyReLU(), nn.Linear(3, 2)
        ),
        rand(8, 3),
    ),
    "mlp, tanh": Animal(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), rand(8, 3)),
    "prelu": Animal(lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2)), rand(8, 3)),
    "squared relu": Animal(
        lambda: Lambda(lambda self, x: self.b(relu(self.a(x)) ** 2), a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
        rand(8, 3),
    ),
    "maxout": Animal(
        lambda: Lambda(
            lambda self, x: self.b(self.a(x).unflatten(-1, (4, 2)).amax(dim=-1)),
            a=nn.Linear(3, 8),
            b=nn.Linear(4, 2),
        ),
        rand(8, 3),
    ),
    "bias before batch norm": Animal(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)), rand(8, 3)
    ),
    "resnet training": Animal(resnet, rand(3, 2, 4, 4)),
    "resnet evaluation": Animal(lambda: resnet().eval(), rand(3, 2, 4, 4)),
    "u-net": Animal(unet, rand(2, 1, 4, 4)),
    "segnet": Animal(segnet, rand(2, 3, 8, 8)),
    "grouped and depthwise": Animal(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, groups=2),
            nn.ReLU(),
            nn.Conv2d(4, 4, 2, groups=4),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4, 2),
        ),
        rand(3, 2, 6, 6),
    ),
    "group norm": Animal(
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 2, 2)),
        rand(2, 2, 5, 5),
    ),
    "weight norm": Animal(
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2)
        ),
        rand(8, 3),
    ),
    "cosine classifier": Animal(
        lambda: Lambda(
            lambda self, x: normalize(relu(self.a(x)), dim=-1) @ normalize(self.b.weight, dim=-1).T,
            a=nn.Linear(3, 4, bias=False),
            b=nn.Linear(4, 3, bias=False),
        ),
        rand(8, 3),
    ),
    "embedding, layer norm": Animal(
        lambda: nn.Sequential(nn.Embedding(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)), tokens(4, 6, 3)
    ),
    "attention, fused": Animal(lambda: attention(bias=True, fused=True), rand(2, 3, 4)),
    "attention by hand": Animal(lambda: attention(bias=True, fused=False), rand(2, 3, 4)),
    "attention by hand, no bias": Animal(lambda: attention(bias=False, fused=False), rand(2, 3, 4)),
    "nn.MultiheadAttention": Animal(
        lambda: Lambda(
            lambda self, x: self.a(x, x, x, need_weights=False)[0],
            a=nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        rand(2, 3, 4),
    ),
    "gpt, layer norm, gelu": Animal(lambda: gpt(bias=True), tokens(5, 3, 4)),
    "gpt without biases": Animal(lambda: gpt(bias=False), tokens(5, 3, 4)),
    "swiglu, rms norm": Animal(swiglu, rand(6, 4)),
    "tied autoencoder": Animal(
        lambda: Lambda(lambda self, x: relu(self.a(x)) @ self.a.weight, a=nn.Linear(3, 4)), rand(8, 3)
    ),
    "lstm": Animal(lambda: nn.LSTM(2, 3), rand(4, 2, 2)),
}
"""All of them by name."""
