"""Whole transformers, and networks with their shape but without attention."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, relu, scaled_dot_product_attention, silu

from tests.support.zoo.animal import Animal, Lambda, rand, tokens, weight
from tests.support.zoo.attention import attention, by_hand, fused


def gpt(*, bias: bool, activation: Callable[[Tensor], Tensor] = gelu, norm: object = None) -> nn.Module:
    def forward(self: nn.Module, places: Tensor) -> Tensor:
        x = self.embedding(places)
        x = x + self.attention(self.first(x))
        x = x + self.down(activation(self.up(self.second(x))))
        return self.head(self.last(x))

    norm = norm or (lambda: nn.LayerNorm(4, bias=bias))
    return Lambda(
        forward,
        embedding=nn.Embedding(5, 4),
        first=norm(),
        attention=attention(fused, bias=bias),
        second=norm(),
        up=nn.Linear(4, 6, bias=bias),
        down=nn.Linear(6, 4, bias=bias),
        last=norm(),
        head=nn.Linear(4, 3, bias=bias),
    )


def rotated(x: Tensor) -> Tensor:
    """Rotary positions: features ``i`` and ``i + d / 2`` are turned by the place."""
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.3], dtype=x.dtype)
    sine, cosine = (torch.cat([part, part], dim=-1) for part in (angle.sin(), angle.cos()))
    left, right = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-right, left], dim=-1) * sine


def llama() -> nn.Module:
    """RMS norm, SwiGLU, rotary positions, and two queries for each key."""

    def forward(self: nn.Module, places: Tensor) -> Tensor:
        x = self.embedding(places)
        query, key, value = (
            part(self.first(x)).unflatten(-1, (-1, 4)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        key, value = (one.repeat_interleave(2, dim=1) for one in (rotated(key), value))
        mixed = scaled_dot_product_attention(rotated(query), key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        y = self.second(x)
        x = x + self.down(silu(self.gate(y)) * self.up(y))
        return self.head(self.last(x))

    sizes = {"query": (4, 8), "key": (4, 4), "value": (4, 4), "out": (8, 4)}
    sizes |= {"gate": (4, 5), "up": (4, 5), "down": (5, 4), "head": (4, 3)}
    parts = {name: nn.Linear(*size, bias=False) for name, size in sizes.items()}
    norms = {name: nn.RMSNorm(4) for name in ("first", "second", "last")}
    return Lambda(forward, embedding=nn.Embedding(5, 4), **norms, **parts)


def swiglu() -> nn.Module:
    return Lambda(
        lambda self, x: self.head(x + self.down(silu(self.gate(self.norm(x))) * self.up(self.norm(x)))),
        norm=nn.RMSNorm(4),
        gate=nn.Linear(4, 5, bias=False),
        up=nn.Linear(4, 5, bias=False),
        down=nn.Linear(5, 4, bias=False),
        head=nn.Linear(4, 2, bias=False),
    )


def tied_embeddings() -> nn.Module:
    """The table of words is also the classifier."""

    def forward(self: nn.Module, places: Tensor) -> Tensor:
        x = self.words(places)
        x = x + self.down(relu(self.up(x)))
        return linear(self.norm(x), self.words.weight)

    return Lambda(
        forward, words=nn.Embedding(4, 3), up=nn.Linear(3, 4), down=nn.Linear(4, 3), norm=nn.LayerNorm(3)
    )


def mixer() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.within(self.second(x))
        return self.head(x.mean(dim=1))

    def mlp(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, width))

    return nn.Sequential(
        nn.Linear(2, 3),
        Lambda(
            forward,
            first=nn.LayerNorm(3),
            across=mlp(4),
            second=nn.LayerNorm(3),
            within=mlp(3),
            head=nn.Linear(3, 2),
        ),
    )


def gated_mlp() -> nn.Module:
    """gMLP: one half of the features, mixed over places, multiplies the other."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        left, right = gelu(self.up(layer_norm(x, [3]))).chunk(2, dim=-1)
        gate = self.places(self.norm(right).transpose(1, 2)).transpose(1, 2)
        return self.head(x + self.down(left * gate))

    return Lambda(
        forward,
        up=nn.Linear(3, 6),
        norm=nn.LayerNorm(3),
        places=nn.Linear(4, 4),
        down=nn.Linear(3, 3),
        head=nn.Linear(3, 2),
    )


def vision_transformer() -> nn.Module:
    """Patches, a token for the class, and learned positions."""

    def forward(self: nn.Module, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        x = x + self.attention(self.norm(x))
        return self.head(x[:, 0])

    return Lambda(
        forward,
        patches=nn.Conv2d(1, 4, 2, stride=2),
        token=weight(1, 1, 4),
        positions=weight(1, 5, 4),
        norm=nn.LayerNorm(4),
        attention=attention(by_hand),
        head=nn.Linear(4, 2),
    )


def encoder_layer(*, norm_first: bool = False) -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True, norm_first=norm_first)


def squared_relu(x: Tensor) -> Tensor:
    return relu(x).square()


TRANSFORMERS: dict[str, Animal] = {
    "gpt, layer norm, gelu": Animal(lambda: gpt(bias=True), tokens(5, 3, 4)),
    "gpt without biases": Animal(lambda: gpt(bias=False), tokens(5, 3, 4), slow=True),
    "gpt, rms norm, squared relu": Animal(
        lambda: gpt(bias=False, activation=squared_relu, norm=lambda: nn.RMSNorm(4)),
        tokens(5, 3, 4),
        slow=True,
    ),
    "llama": Animal(llama, tokens(5, 3, 4)),
    "swiglu, rms norm": Animal(swiglu, rand(6, 4), slow=True),
    "tied embeddings": Animal(tied_embeddings, tokens(4, 4, 3), slow=True),
    "mlp mixer": Animal(mixer, rand(3, 4, 2)),
    "gated mlp": Animal(gated_mlp, rand(3, 4, 3), slow=True),
    "vision transformer": Animal(vision_transformer, rand(2, 1, 4, 4), slow=True),
    "nn.TransformerEncoderLayer training": Animal(encoder_layer, rand(2, 3, 4), slow=True),
    "nn.TransformerEncoderLayer evaluation": Animal(
        lambda: encoder_layer(norm_first=True).eval(), rand(2, 3, 4), slow=True
    ),
}
