"""Rows whose norm is gauge: which they are, and that they get unit norm while outputs stay what they were."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

import symoptim
from symoptim.errors import OptionError, SymmetryError, ZeroFilterError
from symoptim.routing import route
from symoptim.symmetry.roles import roles_from
from symoptim.symmetry.unit_rows import gauge_rows
from tests.support.sampling import one_in


def unbalanced(model: nn.Module) -> nn.Module:
    """The model in float64, its rows of any norm, its biases and gains of any value."""
    generator = torch.Generator().manual_seed(5)
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                sizes = torch.randn(len(parameter), generator=generator).exp().to(parameter)
                parameter.mul_(sizes.reshape(-1, *[1] * (parameter.ndim - 1)))
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return model


class Backwards(nn.Module):
    """Layers that are registered in the reverse of their order."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.middle, self.first = nn.Linear(5, 2), nn.Linear(4, 5), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(relu(self.middle(relu(self.first(x)))))


class Recurrent(nn.Module):
    """A matrix whose rows and columns are of the same units: no row can be scaled alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = relu(self.first(x))
        for _ in range(3):
            hidden = relu(self.again(hidden) + self.first(x))
        return self.last(hidden)


class Attention(nn.Module):
    """One head by hand: only products of queries and keys matter."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.query(x) @ self.key(x).mT / math.sqrt(6)).softmax(-1)
        return x + self.out(weights @ self.value(x))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4, eps=1e-30),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 3, 3),
        nn.BatchNorm2d(3, eps=1e-30),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3 * 64, 2),
    )


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


CASES = {
    "perceptron": (perceptron, (6, 3), {"0.weight", "2.weight"}),
    "backwards": (Backwards, (6, 3), {"first.weight", "middle.weight"}),
    "recurrent": (Recurrent, (6, 3), {"first.weight"}),
    "convolutions": (convolutions, (3, 2, 8, 8), {"0.weight", "3.weight"}),
    "attention": (Attention, (2, 5, 6), {"query.weight", "value.weight"}),
    "pairs of filters": (lambda: symoptim.models.arch1(2, inputs=3, classes=2, width=4), (6, 3), set()),
    "tanh": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), (6, 3), set()),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (2, 5, 8),
        {"linear1.weight"},
    ),
}


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_rows_get_unit_norm_and_outputs_stay(name: str) -> None:
    make, shape, expected = CASES[name]
    model, x = unbalanced(make()), torch.rand(shape, dtype=torch.float64)
    spec = symoptim.discover(model, (x,))
    axes = {
        n: role.axis for n, role in roles_from(spec, model, route(model)).items() if role.geometry == "rows"
    }
    assert {found.name for found in gauge_rows(spec, axes)} == expected
    before = copy.deepcopy(model)(x).detach()
    assert symoptim.balance_(model, spec=spec) is model
    assert (model(x) - before).norm() <= 1e-12 * before.norm()
    for one in expected:
        rows = model.get_parameter(one).detach().transpose(0, axes[one]).flatten(1)
        assert (rows.norm(dim=1) - 1).abs().max() < 1e-14


def test_a_balanced_model_keeps_every_bit() -> None:
    model, x = unbalanced(perceptron()), torch.rand(6, 3, dtype=torch.float64)
    spec = symoptim.discover(model, (x,))
    once = copy.deepcopy(symoptim.balance_(model, spec=spec).state_dict())
    again = symoptim.balance_(model, spec=spec).state_dict()
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_frozen_tensors_do_not_absorb_scales() -> None:
    model, x = perceptron(), torch.rand(6, 3)
    spec = symoptim.discover(model, (x,))
    found = gauge_rows(spec, {"0.weight": 0, "2.weight": 0}, fixed=["2.weight"])
    assert [one.name for one in found] == []
    found = gauge_rows(spec, {"0.weight": 0, "2.weight": 0}, fixed=["0.bias"])
    assert [one.name for one in found] == ["2.weight"]


def test_what_cannot_be_balanced_is_refused_and_nothing_is_changed() -> None:
    model, x = perceptron(), torch.rand(6, 3)
    spec = symoptim.discover(model, (x,))
    with torch.no_grad():
        model[2].weight[1] = 0
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ZeroFilterError, match=r"'2\.weight' has rows that are zero"):
        symoptim.balance_(model, spec=spec)
    with pytest.raises(OptionError, match="classifier='columns' and spec= cannot be combined"):
        symoptim.balance_(model, spec=spec, classifier="columns")
    with pytest.raises(SymmetryError, match="another model's symmetries"):
        symoptim.balance_(nn.Linear(3, 2), spec=spec)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
