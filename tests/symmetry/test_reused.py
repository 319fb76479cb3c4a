"""A copy that is used again is as good as a new one, whatever a call has left behind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry import reused
from symoptim.symmetry.discover import discover
from symoptim.symmetry.eps_effect import eps_effect_of
from symoptim.symmetry.reused import Reused

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Leaving(nn.Module):
    """Leaves something behind at every call, in a way of its own; later calls compute with it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way, self.count, self.seen = way, 0, list[Tensor]()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)
        self.register_buffer("buffer", torch.ones(3).expand(2, 3))  # several entries in one memory
        self.register_buffer("single", torch.ones(()))
        self.plain, held = torch.ones(()), torch.ones(())
        self.tied = self.last
        if way == "closure":
            self.held = lambda: held

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.last(torch.relu(self.norm(self.first(x))))
        return hidden * self.left() + self.buffer.sum()

    def left(self) -> Any:
        with torch.no_grad():
            match self.way:
                case "count":
                    self.count += 1
                    return self.count
                case "list":
                    self.seen.append(torch.ones(()))
                    return len(self.seen)
                case "buffer":
                    return self.single.add_(1).clone()
                case "data":
                    self.single.data += 1
                    return self.single.clone()
                case "other data":
                    self.single.data = self.single + 1
                    return self.single.clone()
                case "attribute":
                    return self.plain.add_(1).clone()
                case "closure":
                    return self.held().add_(1).clone()
                case _:
                    self.last.weight.mul_(2)
                    return 1


WAYS = ["count", "list", "buffer", "data", "other data", "attribute", "closure", "weight"]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_every_call_is_a_first_one_and_the_model_is_left_alone(way: str, wide: bool) -> None:
    model = Leaving(way)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copy, x = Reused(model, wide=wide), X.double() if wide else X
    outputs = [copy.fresh()(x).detach() for _ in range(3)]
    assert torch.equal(outputs[1], outputs[0])
    assert torch.equal(outputs[2], outputs[0])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert (model.count, len(model.seen), float(model.plain)) == (0, 0, 1.0)


@pytest.mark.parametrize(("way", "copies"), [("count", 1), ("weight", 1), ("other data", 4), ("closure", 4)])
def test_it_is_copied_anew_only_where_values_cannot_be_brought_back(
    way: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[nn.Module] = []

    def counted(model: nn.Module, *, wide: bool) -> nn.Module:
        made.append(model)
        return copied(model, wide=wide)

    copied, copy = reused.copied, Reused(Leaving(way), wide=True)
    monkeypatch.setattr(reused, "copied", counted)
    for _ in range(4):
        copy.fresh()(X.double())
    assert len(made) == copies


def test_gradients_and_modes_do_not_stay() -> None:
    model = Leaving("buffer").requires_grad_(False)
    model.first.weight.requires_grad_(True)
    copy = Reused(model, wide=True)
    one = copy.fresh()
    one.requires_grad_(True).eval()(X.double()).sum().backward()
    other = copy.fresh()
    assert other.training
    asking = [name for name, parameter in other.named_parameters() if parameter.requires_grad]
    assert asking == ["first.weight"]
    assert all(parameter.grad is None for parameter in other.parameters())


def test_it_has_the_values_that_the_model_has_now() -> None:
    model = Leaving("count")
    copy = Reused(model, wide=True)
    copy.fresh()
    with torch.no_grad():
        model.first.weight.fill_(3)
    assert torch.equal(copy.fresh().first.weight, model.first.weight.double())


@pytest.mark.parametrize("way", WAYS)
def test_what_a_call_leaves_behind_is_no_change_by_eps(way: str) -> None:
    model = Leaving(way)
    spec = discover(model.eval(), (X,), vouch="*")
    felt = eps_effect_of(spec, model, (X,))
    assert felt is not None
    assert [felt.change(torch.zeros(len(spec))) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("size", [2.0, 1e3])
def test_acting_factor_by_factor_is_acting_on_the_model(size: float) -> None:
    """Also where factors are too large or too small for float64, and their product is not."""
    tower = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    spec = discover(tower, (X.double(),))
    element = torch.full((len(spec),), size, dtype=torch.float64)
    moved = reused.copied(tower, wide=True)
    reused.act(spec, moved, element)
    assert moved[2].weight.isfinite().all()
    for name, log_scale in spec.log_scales(element).items():
        expected = tower.state_dict()[name] * log_scale.exp()
        torch.testing.assert_close(moved.state_dict()[name], expected, rtol=1e-12, atol=0)
