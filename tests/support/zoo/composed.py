"""Networks whose weights are products, are shared, or are made by other networks."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from tests.support.zoo.animal import Animal, Lambda, rand, together, weight


def hypernetwork() -> nn.Module:
    """A small network's output multiplies the rows of another layer."""

    def forward(self: nn.Module, x: Tensor, condition: Tensor) -> Tensor:
        rows = self.scale(relu(self.condition(condition)))
        return self.head(relu(linear(x, rows[:, None] * self.body)))

    parts = {"condition": nn.Linear(2, 3), "scale": nn.Linear(3, 4), "head": nn.Linear(4, 2)}
    return Lambda(forward, body=weight(4, 3), **parts)


def film() -> nn.Module:
    def forward(self: nn.Module, x: Tensor, condition: Tensor) -> Tensor:
        gain, shift = self.condition(condition).chunk(2, dim=-1)
        return self.head(relu(gain * self.body(x) + shift))

    return Lambda(forward, condition=nn.Linear(2, 8), body=nn.Linear(3, 4), head=nn.Linear(4, 2))


def siamese() -> nn.Module:
    def forward(self: nn.Module, one: Tensor, other: Tensor) -> Tensor:
        return self.head((self.tower(one) - self.tower(other)).abs())

    return Lambda(
        forward, tower=nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), head=nn.Linear(2, 2)
    )


def deep_sets() -> nn.Module:
    return Lambda(
        lambda self, x: self.after(relu(self.each(x)).sum(dim=1)),
        each=nn.Linear(3, 4),
        after=nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)),
    )


def deep_operator_network() -> nn.Module:
    return Lambda(
        lambda self, u, y: torch.einsum("bp,np->bn", self.branch(u), self.trunk(y)) + self.bias,
        branch=nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)),
        trunk=nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.ReLU()),
        bias=weight(1),
    )


def low_rank_adaptation() -> nn.Module:
    model = Lambda(
        lambda self, x: self.head(relu(linear(x, self.frozen.weight + self.b @ self.a))),
        frozen=nn.Linear(3, 4, bias=False),
        a=weight(2, 3),
        b=weight(4, 2),
        head=nn.Linear(4, 2),
    )
    model.frozen.weight.requires_grad_(False)
    return model


class LowRank(nn.Module):
    """A matrix as a product of two, by ``torch.nn.utils.parametrize``."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = weight(4, 2), weight(2, 3)

    def forward(self, matrix: Tensor) -> Tensor:
        return matrix + self.left @ self.right


def low_rank() -> nn.Module:
    first = nn.Linear(3, 4)
    nn.utils.parametrize.register_parametrization(first, "weight", LowRank())
    return nn.Sequential(first, nn.ReLU(), nn.Linear(4, 2))


def chosen_rows() -> nn.Module:
    """Rows of a weight are looked up by numbers that never change."""
    return Lambda(
        lambda self, x: self.head(relu(linear(x, self.table[torch.tensor([0, 3, 2, 1, 2])]))),
        table=weight(4, 3),
        head=nn.Linear(5, 2),
    )


pair = together(rand(8, 3), rand(8, 2))
COMPOSED: dict[str, Animal] = {
    "bilinear glu": Animal(
        lambda: Lambda(
            lambda self, x: self.head(self.gate(x) * self.up(x)),
            gate=nn.Linear(3, 4),
            up=nn.Linear(3, 4),
            head=nn.Linear(4, 2),
        ),
        rand(8, 3),
        slow=True,
    ),
    "nn.Bilinear": Animal(
        lambda: Lambda(
            lambda self, x, y: self.head(self.pair(relu(self.a(x)), relu(self.b(y)))),
            a=nn.Linear(3, 3),
            b=nn.Linear(2, 2),
            pair=nn.Bilinear(3, 2, 3),
            head=nn.Linear(3, 2),
        ),
        pair,
        slow=True,
    ),
    "hypernetwork": Animal(hypernetwork, together(rand(8, 3), rand(2)), slow=True),
    "film": Animal(film, pair, slow=True),
    "siamese": Animal(siamese, together(rand(8, 3), rand(8, 3)), slow=True),
    "deep sets": Animal(deep_sets, rand(4, 3, 3), slow=True),
    "deep operator network": Animal(deep_operator_network, together(rand(4, 3), rand(5, 2)), slow=True),
    "tied autoencoder": Animal(
        lambda: Lambda(lambda self, x: relu(self.a(x)) @ self.a.weight, a=nn.Linear(3, 4)), rand(8, 3)
    ),
    "low-rank adaptation": Animal(low_rank_adaptation, rand(8, 3), slow=True),
    "low rank by parametrization": Animal(low_rank, rand(8, 3), slow=True),
    "chosen rows of a weight": Animal(chosen_rows, rand(8, 3)),
}
