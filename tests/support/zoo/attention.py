"""Attention of every kind, without a network around it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu, normalize, relu, scaled_dot_product_attention

from tests.support.zoo.animal import Animal, Lambda, rand, together, weight

Mix = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


def attention(mix: Mix, *, bias: bool = True, **parts: nn.Module | nn.Parameter) -> nn.Module:
    """Two heads of size 2; ``mix`` makes the result of queries, keys and values ``(b, h, n, d)``."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        heads = (part(x).unflatten(-1, (2, 2)).transpose(1, 2) for part in (self.query, self.key, self.value))
        return self.out(mix(self, *heads).transpose(1, 2).flatten(-2))

    linears = {name: nn.Linear(4, 4, bias=bias) for name in ("query", "key", "value", "out")}
    return Lambda(forward, **linears, **parts)


def fused(_: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, key, value, is_causal=True)


def by_hand(_: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.transpose(-1, -2) / 2**0.5).softmax(dim=-1) @ value


def masked(_: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    after = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
    scores = (query @ key.transpose(-1, -2)).masked_fill(after, -torch.inf)
    return scores.softmax(dim=-1) @ value


def with_normalized_keys(self: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(self.query_norm(query), self.key_norm(key), value)


def cosine(self: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = normalize(query, dim=-1) @ normalize(key, dim=-1).transpose(-1, -2)
    return (scores * self.temperature.exp()).softmax(dim=-1) @ value


def relative(self: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A learned number for every distance and head is added to the scores."""
    scores = query @ key.transpose(-1, -2) + self.table[self.distance].permute(2, 0, 1)
    return scores.softmax(dim=-1) @ value


def relative_attention(size: int) -> nn.Module:
    model = attention(relative, table=weight(2 * size - 1, 2))
    places = torch.arange(size)
    model.register_buffer("distance", places[:, None] - places[None, :] + size - 1)
    return model


def linear(feature: Callable[[Tensor], Tensor]) -> Mix:
    def mix(_: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = feature(query), feature(key)
        total = query @ key.sum(dim=-2, keepdim=True).transpose(-1, -2)
        return query @ (key.transpose(-1, -2) @ value) / total

    return mix


def softmax_features(_: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return query.softmax(dim=-1) @ (key.softmax(dim=-2).transpose(-1, -2) @ value)


def perceiver() -> nn.Module:
    """Learned latents look at the input."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        query = self.query(self.latents).expand(len(x), -1, -1)
        return self.head(scaled_dot_product_attention(query, self.key(x), self.value(x)))

    parts = {name: nn.Linear(3, 4) for name in ("query", "key", "value")}
    return Lambda(forward, latents=weight(2, 3), head=nn.Linear(4, 2), **parts)


def swin() -> nn.Module:
    """Attention within windows of a line that was rolled on by half a window."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        windows = self.norm(x).roll(-1, dims=1).unflatten(1, (-1, 2)).flatten(0, 1)
        mixed = self.attention(windows).unflatten(0, (len(x), -1)).flatten(1, 2).roll(1, dims=1)
        return self.head(x + mixed)

    return Lambda(forward, norm=nn.LayerNorm(4), attention=attention(by_hand), head=nn.Linear(4, 2))


def grouped_queries() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        query, key, value = (part(x).unflatten(-1, (-1, 2)).transpose(1, 2) for part in self.parts)
        mixed = scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    parts = nn.ModuleList([nn.Linear(4, 8), nn.Linear(4, 4), nn.Linear(4, 4)])
    return Lambda(forward, parts=parts, out=nn.Linear(8, 2))


x = rand(2, 3, 4)
ATTENTION: dict[str, Animal] = {
    "attention, fused": Animal(lambda: attention(fused), x),
    "attention by hand": Animal(lambda: attention(by_hand), x),
    "attention by hand, no bias": Animal(lambda: attention(by_hand, bias=False), x, slow=True),
    "attention by hand, masked": Animal(lambda: attention(masked), x, slow=True),
    "attention, normalized keys": Animal(
        lambda: attention(with_normalized_keys, bias=False, query_norm=nn.RMSNorm(2), key_norm=nn.RMSNorm(2)),
        x,
        slow=True,
    ),
    "cosine attention": Animal(
        lambda: attention(cosine, bias=False, temperature=weight(2, 1, 1)), x, slow=True
    ),
    "relative attention": Animal(lambda: relative_attention(3), x),
    "linear attention, elu": Animal(lambda: attention(linear(lambda x: elu(x) + 1)), x, slow=True),
    "linear attention, leaky": Animal(lambda: attention(linear(lambda x: leaky_relu(x).abs())), x, slow=True),
    "linear attention, softmax": Animal(lambda: attention(softmax_features), x, slow=True),
    "grouped queries": Animal(grouped_queries, x, slow=True),
    "perceiver": Animal(perceiver, rand(3, 4, 3), slow=True),
    "swin": Animal(swin, rand(2, 4, 4), slow=True),
    "nn.MultiheadAttention": Animal(
        lambda: Lambda(
            lambda self, x: self.a(x, x, x, need_weights=False)[0],
            a=nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        x,
    ),
    "nn.MultiheadAttention across": Animal(
        lambda: Lambda(
            lambda self, x, y: self.a(relu(self.first(x)), relu(self.second(y)), relu(self.second(y)))[0],
            first=nn.Linear(3, 4),
            second=nn.Linear(3, 4),
            a=nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        together(rand(3, 3, 3), rand(3, 4, 3)),
    ),
    "nn.MultiheadAttention of three": Animal(
        lambda: Lambda(
            lambda self, x, y, z: self.a(x, y, z, need_weights=False)[0],
            a=nn.MultiheadAttention(4, 2, kdim=3, vdim=2, batch_first=True),
        ),
        together(rand(2, 3, 4), rand(2, 4, 3), rand(2, 4, 2)),
        slow=True,
    ),
}
