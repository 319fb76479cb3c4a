"""Roles from symmetries: those of the paper on its networks, and right where layer types cannot know."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

import symoptim
from symoptim.errors import GeometryWarning, SymmetryError
from symoptim.optim import param_groups as groups
from symoptim.symmetry.certify import Certificate


def roles(model: nn.Module, *shape: int) -> dict[str, tuple[str, int]]:
    routed = symoptim.param_groups(model, example_inputs=(torch.rand(shape),)).routed
    return {one.names[0]: one.role[:2] for one in routed}


def by_layer(model: nn.Module) -> dict[str, tuple[str, int]]:
    return {one.names[0]: one.role[:2] for one in symoptim.param_groups(model).routed}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (symoptim.models.arch1(2, inputs=3, classes=2, width=4), (6, 3)),
        (symoptim.models.arch2(4, inputs=3, classes=2, width=4), (6, 3)),
        (symoptim.models.SegNetBasic(3, features=4), (2, 3, 32, 32)),
        (nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.ReLU(), nn.Conv2d(3, 2, 1)), (2, 2, 4, 4)),
    ],
)
def test_on_the_papers_networks_symmetries_and_layer_types_agree(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    assert roles(model, *shape) == by_layer(model)


class TwoHeads(nn.Module):
    """The layer that was registered last is used first, and there are two classifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 2), nn.Linear(4, 3)
        self.body = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = relu(self.body(x))
        return self.one(hidden), self.other(hidden)


def test_every_head_is_by_columns_wherever_it_is_registered() -> None:
    found = roles(TwoHeads(), 5, 3)
    assert found["body.weight"] == ("rows", 0)
    assert found["one.weight"] == found["other.weight"] == ("columns", 0)
    assert by_layer(TwoHeads())["body.weight"] == ("columns", 0)


class Homemade(nn.Module):
    """Matrices the other way round, not in any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = (nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4, 2)))

    def forward(self, x: Tensor) -> Tensor:
        return relu(x @ self.body) @ self.head


def test_matrices_of_ones_own_are_understood() -> None:
    assert roles(Homemade(), 5, 3) == {"body": ("rows", 1), "head": ("columns", 1)}


def test_what_cannot_rescale_is_plain() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.warns(GeometryWarning):
        assert set(roles(model, 5, 3).values()) == {("plain", 0)}


def test_an_embedding_stays_plain() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    routed = symoptim.param_groups(model, example_inputs=(torch.randint(5, (2, 3)),)).routed
    assert {one.names[0]: one.role.geometry for one in routed if one.parameter.ndim > 1} == {
        "0.weight": "plain",
        "1.weight": "rows",
        "3.weight": "columns",
    }


def test_overrides_have_the_last_word() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    found = symoptim.param_groups(model, example_inputs=(torch.rand(5, 3),), overrides={"0": "plain"})
    assert [group["geometry"] for group in found] == ["columns", "plain"]


def test_symmetries_that_fail_their_certificate_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Certificate, "holds", property(lambda self: False))
    with pytest.raises(
        SymmetryError, match=r"DOES NOT HOLD.*go by layer type instead, leave example_inputs= out"
    ):
        groups.param_groups(nn.Linear(3, 2), example_inputs=(torch.rand(5, 3),))
