"""Networks of linear layers: activations, pools over features, skips."""

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, relu

import symoptim
from tests.support.zoo.animal import Animal, Lambda, rand, weight


def small_arch(make: object) -> nn.Module:
    """One of the paper's networks with 4 features per layer, which a pool makes 2."""
    return make(2, inputs=3, classes=2, width=4)


def around(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 2))


def arch2_with_biases() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs in (3, 2):
        layers += [nn.Linear(inputs, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2)]
    return nn.Sequential(*layers, nn.Linear(2, 2))


def residual() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x + self.down(relu(self.up(x)))
        x = x + self.lower(relu(self.upper(x)))
        return self.head(x)

    return Lambda(
        forward,
        first=nn.Linear(3, 3),
        up=nn.Linear(3, 4),
        down=nn.Linear(4, 3),
        upper=nn.Linear(3, 2),
        lower=nn.Linear(2, 3),
        head=nn.Linear(3, 2),
    )


def scaled_residual() -> nn.Module:
    """A learned number in front of each branch, without a norm."""
    return Lambda(
        lambda self, x: self.head(x + self.scale * self.down(relu(self.up(x)))),
        up=nn.Linear(3, 4),
        down=nn.Linear(4, 3),
        scale=nn.Parameter(torch.ones(())),
        head=nn.Linear(3, 2),
    )


def highway() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return self.head(gate * relu(self.body(x)) + (1 - gate) * x)

    return Lambda(forward, gate=nn.Linear(3, 3), body=nn.Linear(3, 3), head=nn.Linear(3, 2))


def slices_in_place() -> nn.Module:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        hidden = torch.zeros(len(x), 4, dtype=x.dtype)
        hidden[:, :2] = relu(self.left(x))
        hidden[:, 2:] = relu(self.right(x))
        hidden[:, 1:3] *= 2
        return self.head(hidden)

    return Lambda(forward, left=nn.Linear(3, 2), right=nn.Linear(3, 2), head=nn.Linear(4, 2))


PERCEPTRONS: dict[str, Animal] = {
    "arch1": Animal(lambda: small_arch(symoptim.models.arch1), rand(6, 3)),
    "arch2 training": Animal(lambda: small_arch(symoptim.models.arch2), rand(6, 3)),
    "arch2 evaluation": Animal(lambda: small_arch(symoptim.models.arch2).eval(), rand(6, 3), slow=True),
    "arch2 with biases": Animal(arch2_with_biases, rand(6, 3), slow=True),
    "arch2 with biases evaluation": Animal(lambda: arch2_with_biases().eval(), rand(6, 3), slow=True),
    "mlp": Animal(lambda: around(nn.ReLU()), rand(8, 3)),
    "mlp, leaky": Animal(
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 3), nn.LeakyReLU(), nn.Linear(3, 2)
        ),
        rand(8, 3),
        slow=True,
    ),
    "mlp, tanh": Animal(lambda: around(nn.Tanh()), rand(8, 3)),
    "relu6": Animal(lambda: around(nn.ReLU6()), rand(8, 3, scale=10.0), slow=True),
    "hardswish": Animal(lambda: around(nn.Hardswish()), rand(8, 3), slow=True),
    "prelu": Animal(lambda: around(nn.PReLU(4)), rand(8, 3)),
    "fourier features": Animal(
        lambda: Lambda(
            lambda self, x: self.mlp(torch.cat([(x @ self.waves).sin(), (x @ self.waves).cos()], dim=-1)),
            waves=weight(3, 2),
            mlp=nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
        ),
        rand(8, 3),
        slow=True,
    ),
    "squared relu": Animal(
        lambda: Lambda(lambda self, x: self.b(relu(self.a(x)) ** 2), a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
        rand(8, 3),
        slow=True,
    ),
    "maxout": Animal(
        lambda: Lambda(
            lambda self, x: self.b(self.a(x).unflatten(-1, (4, 2)).amax(dim=-1)),
            a=nn.Linear(3, 8),
            b=nn.Linear(4, 2),
        ),
        rand(8, 3),
    ),
    "max pool over features": Animal(
        lambda: Lambda(
            lambda self, x: self.b(max_pool1d(relu(self.a(x)), 2)), a=nn.Linear(3, 8), b=nn.Linear(4, 2)
        ),
        rand(8, 3),
        slow=True,
    ),
    "residual mlp": Animal(residual, rand(8, 3)),
    "scaled residual": Animal(scaled_residual, rand(8, 3), slow=True),
    "highway": Animal(highway, rand(8, 3), slow=True),
    "slices in place": Animal(slices_in_place, rand(8, 3)),
    "alpha dropout": Animal(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.AlphaDropout(0.5), nn.Linear(4, 2)).eval(),
        rand(8, 3),
        slow=True,
    ),
}
