"""Networks that do the same operations on every path, on other values: with other inputs, sizes or calls."""

import random
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.other_paths import FLAT, OTHERS, SHORT, Case, W, linear, own, table, x

TWO = {"a": linear(W, 6), "c": linear(W, 6), "p": linear(6, W), "o": linear(6, W)}
ONE = {"a": linear(W, 6), "b": linear(6, W)}
LONGER = tuple((x(2, n, W, seed=n),) for n in (9, 11, 17, 31))
AGAIN = tuple((x(5, W, seed=seed),) for seed in range(4))


def both(m: Any, x: Tensor, *, swapped: bool) -> Tensor:
    u, v = m.a(x).relu(), m.c(x).relu()
    u, v = (v, u) if swapped else (u, v)
    return m.p(u) - m.o(v)


def joined(m: Any, x: Tensor) -> Tensor:
    u, v = m.a(x).relu(), m.c(x).relu()
    return m.q(torch.cat([u, v] if x.sum() > 0 else [v, u], -1))


def one_half(m: Any, x: Tensor) -> Tensor:
    u, v = m.a(x).relu().chunk(2, -1)
    return m.h(u if x.sum() > 0 else v)


def one_layer(m: Any, x: Tensor) -> Tensor:
    early = m.a(x).relu()
    late = m.d(early).relu()
    return m.b(early if x.shape[1] > 8 else late) + m.o(late)


def gated(m: Any, x: Tensor) -> Tensor:
    u, v = m.a(x).relu(), m.c(x).relu()
    gate = u if x[0, 0] > 0 else v
    return m.p(u * gate.sum(-1, keepdim=True).tanh()) + m.o(v)


def ordered(m: Any, x: Tensor, y: Tensor) -> Tensor:
    u, v = m.a(x).relu().mean(1), m.c(y).relu().mean(1)
    return m.p(u) - m.o(v) if x.shape[1] < y.shape[1] else m.p(v) - m.o(u)


def penalty(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x).relu() + torch.tensor([max(0.0, i - 8.0) for i in range(x.shape[1])])[:, None])


def number(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x).relu() + torch.tensor(0.0 if x.shape[1] < 9 else 1.0))


def order_by_value(m: Any, x: Tensor) -> Tensor:
    order = torch.tensor([0, 1, 2, 3, 4, 5] if x.sum() > 0 else [5, 4, 3, 2, 1, 0])
    return m.b(m.a(x).relu()[:, order])


def rolled_by_length(m: Any, x: Tensor) -> Tensor:
    n = x.shape[1]
    return m.b(m.a(x).relu()[..., torch.tensor([(i + n) % 6 for i in range(6)])])


def equally_long(m: Any, x: Tensor, y: Tensor) -> Tensor:
    scores = m.a(x) @ m.c(y).mT
    scores = scores.relu() if x.shape[1] == y.shape[1] else scores.softmax(-1)
    return m.p(scores @ m.c(y))


def square(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return m.b(h.relu() if x.shape[0] == x.shape[1] else h.tanh())


def cut_by_length(m: Any, x: Tensor) -> Tensor:
    h, k = m.a(x).relu(), 0 if x.shape[1] < 8 else 3
    return m.h(h[..., k : k + 3]) + m.b(h)


def narrowed(m: Any, x: Tensor) -> Tensor:
    return m.h(m.a(x).relu().narrow(-1, x.shape[1] % 4, 3))


def selected(m: Any, x: Tensor) -> Tensor:
    h = m.a(x).relu()
    return m.h(h.unflatten(-1, (2, 3))[..., x.shape[1] // 16 % 2, :]) + m.b(h)


def doubled(m: Any, x: Tensor) -> Tensor:
    h = torch.zeros(len(x), 6)
    for t in range(x.shape[1]):
        i = m.a(x[:, t]).relu()
        h = i + h if x[0, t, 0] > 0 else i + i
    return m.b(h)


class Noise(nn.Module):
    """Adds a tensor that it changes at every call, and keeps in an attribute, a list, or a buffer."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, start = where, torch.zeros(6)
        if where == "buffer":
            self.register_buffer("state", start)
        else:
            self.state: Any = [start] if where == "list" else start

    def forward(self, h: Tensor) -> Tensor:
        state = self.state[0] if self.where == "list" else self.state
        other = 0.9 * state + 0.1 * torch.randn(6)
        self.state = [other] if self.where == "list" else other
        return h + state


def noisy(where: str) -> Any:
    return lambda: nn.Sequential(nn.Linear(W, 6), nn.ReLU(), Noise(where), nn.Linear(6, W))


class Shuffle(nn.Module):
    """Takes features in an order that it draws anew for the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.order = torch.arange(6)

    def forward(self, h: Tensor) -> Tensor:
        order, self.order = self.order, torch.randperm(6)
        return h[:, order]


class Statistics(nn.Module):
    """Batch normalization written out, which puts a new tensor in the place of its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, h: Tensor) -> Tensor:
        mean = h.mean(0)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * mean.detach()
        return h - (mean if self.training else self.mean)


CASES: dict[str, Case] = {
    "swapped by chance": Case(
        own(lambda m, x: both(m, x, swapped=bool(torch.rand(()) < 0.5)), **TWO), FLAT, AGAIN
    ),
    "swapped by Python's chance": Case(
        own(lambda m, x: both(m, x, swapped=random.random() < 0.5), **TWO), FLAT, AGAIN
    ),
    "swapped by value": Case(own(lambda m, x: both(m, x, swapped=bool(x.sum() > 0)), **TWO), FLAT, OTHERS),
    "swapped by length": Case(own(lambda m, x: both(m, x, swapped=x.shape[1] > 8), **TWO), SHORT, LONGER),
    "the longer one first": Case(own(ordered, **TWO), (x(2, 5, W), x(2, 7, W)), ((x(2, 7, W), x(2, 5, W)),)),
    "joined in either order": Case(own(joined, **TWO, q=linear(12, W)), FLAT, OTHERS),
    "one half": Case(own(one_half, **TWO, h=linear(3, W)), FLAT, OTHERS),
    "one layer": Case(own(one_layer, **ONE, d=linear(6, 6), o=linear(6, W)), SHORT, LONGER),
    "gated by either": Case(own(gated, **TWO), FLAT, OTHERS),
    "numbers that grow": Case(own(penalty, **ONE), SHORT, LONGER),
    "a number by length": Case(own(number, **ONE), SHORT, LONGER),
    "an order by value": Case(own(order_by_value, **ONE), FLAT, OTHERS),
    "an order by length": Case(own(rolled_by_length, **ONE), SHORT, LONGER),
    "equally long": Case(own(equally_long, **TWO), (x(2, 5, W), x(2, 5, W)), ((x(2, 5, W), x(2, 7, W)),)),
    "square": Case(own(square, **ONE), (x(3, 3, W),), ((x(3, 5, W),), (x(2, 3, W),))),
    "cut by length": Case(own(cut_by_length, **ONE, h=linear(3, W)), SHORT, LONGER),
    "narrowed": Case(own(narrowed, **ONE, h=linear(3, W)), SHORT, LONGER),
    "selected": Case(own(selected, **ONE, h=linear(3, W)), SHORT, LONGER),
    "doubled": Case(own(doubled, **ONE), (x(2, 4, W),), LONGER),
    "rows of a table": Case(
        own(lambda m, x: m.b(m.a(x).relu() * m.t[: x.shape[1] % 3 + 1].sum(0)), **ONE, t=table(3, 6)),
        SHORT,
        LONGER,
    ),
    "noise in an attribute": Case(noisy("attribute"), FLAT, AGAIN),
    "noise in a list": Case(noisy("list"), FLAT, AGAIN),
    "noise in a buffer": Case(noisy("buffer"), FLAT, AGAIN),
    "an order drawn anew": Case(
        lambda: nn.Sequential(nn.Linear(W, 6), nn.ReLU(), Shuffle(), nn.Linear(6, W)), FLAT, AGAIN
    ),
    "statistics put in place": Case(
        lambda: nn.Sequential(nn.Linear(W, 6), nn.ReLU(), Statistics(), nn.Linear(6, W)),
        FLAT,
        AGAIN,
        train=True,
    ),
}
FOUND = {
    "swapped by chance": 15,
    "swapped by Python's chance": 5,
    "swapped by value": 15,
    "swapped by length": 15,
    "the longer one first": 15,
    "joined in either order": 5,
    "one half": 5,
    "one layer": 15,
    "gated by either": 9,
    "numbers that grow": 9,
    "a number by length": 9,
    "an order by value": 10,
    "an order by length": 10,
    "equally long": 5,
    "square": 9,
    "cut by length": 12,
    "narrowed": 5,
    "selected": 12,
    "doubled": 5,
    "rows of a table": 21,
    "noise in an attribute": 9,
    "noise in a list": 9,
    "noise in a buffer": 9,
    "an order drawn anew": 10,
    "statistics put in place": 15,
}
"""At least so many generators are found, with a plain network after each."""
SAME_OPERATIONS = {name: case._replace(found=FOUND[name]) for name, case in CASES.items()}
