"""Copies share tensors and what nobody can copy, and have Python state of their own."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.symmetry.discover import discover
from symoptim.symmetry.isolation import isolated


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
