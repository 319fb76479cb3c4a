"""Copies share tensors and what nobody can copy, and have Python state of their own."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.errors import TraceError
from symoptim.symmetry.copies import isolated
from symoptim.symmetry.discover import discover


class Counting(nn.Module):
    """Counts its calls, beside a lock that nobody can copy."""

    def __init__(self, keep: Any) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(2, 2), keep
        self.state = {"calls": 0, "lock": threading.Lock()}

    def forward(self, x: Tensor) -> Tensor:
        self.state["calls"] += 1
        return self.layer(x)


class Holder:
    """Has attributes of all kinds."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), [0]


@pytest.mark.parametrize(
    "keep", [None, threading.Lock(), [threading.Lock()], (threading.Lock(), 1), Holder()]
)
def test_a_lock_is_shared_and_a_count_is_not(keep: Any) -> None:
    model = nn.Sequential(Counting(keep), nn.ReLU())
    model.first = model[0]  # a second name
    other = isolated(model)
    assert other is not model
    assert other[0] is other.first is not model[0]
    assert other[0].layer.weight is model[0].layer.weight
    assert other[0].state["lock"] is model[0].state["lock"]
    other[0](torch.rand(3, 2))
    assert (model[0].state["calls"], other[0].state["calls"]) == (0, 1)
    if isinstance(keep, Holder):
        assert other[0].kept.lock is keep.lock
        assert other[0].kept.calls is not keep.calls


def test_a_model_with_a_lock_is_left_as_it_is() -> None:
    model = Counting(None)
    discover(model, (torch.rand(3, 2),), vouch="*")
    assert model.state["calls"] == 0


def test_an_array_that_shares_memory_with_a_weight_still_does_and_others_are_copied() -> None:
    model = nn.Linear(2, 2)
    model.array = model.weight.detach().numpy()
    model.other = model.array.copy()
    copied = isolated(model)
    assert copied.array is model.array
    assert copied.other is not model.other


class Writing(nn.Module):
    """Writes to its weights when it is called, in one of the ways there are."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.first, self.second = way, nn.Linear(3, 4), nn.Linear(4, 2)
        self.kept: Any = {
            "list": [self.first.weight],
            "view": self.first.weight.detach(),
            "array": self.first.weight.detach().numpy(),
        }.get(way)

    @torch.no_grad()
    def write(self) -> None:
        weight = self.first.weight
        match self.way:
            case "norm":
                weight.div_(weight.norm(dim=1, keepdim=True))
            case "clamp":
                weight.clamp_(-0.1, 0.1)
            case "data":
                weight.data.mul_(0.9)
            case "list":
                self.kept[0].mul_(0.9)
            case _:
                self.kept *= 0.9

    def forward(self, x: Tensor) -> Tensor:
        self.write()
        return self.second(torch.relu(self.first(x)))


def values(model: nn.Module) -> list[Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


@pytest.mark.filterwarnings("ignore:other paths:symoptim.errors.PathWarning")
@pytest.mark.parametrize("way", ["norm", "clamp", "data", "list", "view", "array", "max_norm"])
def test_weights_that_a_model_writes_to_are_left_as_they_are(way: str) -> None:
    model, x = Writing(way), torch.rand(5, 3)
    if way == "max_norm":
        model, x = nn.Sequential(nn.Embedding(5, 4, max_norm=0.1), nn.Linear(4, 2)), torch.tensor([[1, 2]])
    before = values(model)
    if way in ("list", "view"):
        with pytest.raises(TraceError, match="by a second way"):
            discover(model, (x,))
    else:
        assert len(discover(model, (x,))) == (4 if way == "data" else 0)
    assert all(map(torch.equal, before, values(model)))
    model(x)
    assert not all(map(torch.equal, before, values(model)))
