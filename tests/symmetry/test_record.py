"""Watching one pass: it finds what export finds, and goes where export cannot."""

import copy

import pytest
import torch
from torch import Tensor, nn

from symmetry.zoo import caught, for_every_animal, group_of
from symoptim.errors import TraceError
from symoptim.symmetry import discover as discovery
from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover
from symoptim.symmetry.recorder import Recorder


@for_every_animal
def test_a_recorded_pass_has_the_symmetries_of_an_exported_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model, arguments, _), exported = caught(name), group_of(name)
    before = copy.deepcopy(model.state_dict())

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("cannot be exported\nfor many reasons")

    monkeypatch.setattr(discovery, "trace", refuse)
    recorded = discover(model, arguments)
    assert not exported.recorded
    assert recorded.recorded == "RuntimeError: cannot be exported"
    assert not recorded.unknown or name in ("lstm", "gru")  # their cells add in place, and are pinned anyway
    assert len(recorded) == len(exported)
    assert certify(recorded, model, arguments).holds
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Branching(nn.Module):
    """Which way it goes depends on what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x))
        if hidden.sum() > 1:
            hidden = hidden * 2
        return self.third(torch.relu(self.second(hidden)))


def test_what_decides_the_way_is_pinned_and_the_rest_is_found() -> None:
    model, arguments = Branching().double(), (torch.rand(6, 3, dtype=torch.float64),)
    spec = discover(model, arguments)
    assert len(spec) == 5
    assert spec.pinned == {"item": 1}
    assert "same way" in str(spec)
    assert certify(spec, model, arguments).holds


class ThroughNumbers(nn.Module):
    """Leaves torch and comes back: what happens in between cannot be watched."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.second, self.way = nn.Linear(3, 4), nn.Linear(4, 2), way

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x)).detach()
        if self.way == "numpy":
            hidden = torch.from_numpy(hidden.numpy().copy())
        else:
            hidden = torch.tensor(hidden.tolist(), dtype=x.dtype)
        return self.second(hidden)


def test_a_detour_around_torch_is_refused() -> None:
    with pytest.raises(TraceError, match=r"numpy.*stay within torch"):
        discover(ThroughNumbers("numpy"), (torch.rand(6, 3),))


def test_numbers_that_are_taken_out_are_pinned() -> None:
    spec = discover(ThroughNumbers("list"), (torch.rand(6, 3),))
    assert (len(spec), spec.pinned) == (0, {"item": 24})


def test_a_model_that_does_not_run_says_so_itself() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        discover(nn.Linear(3, 4), (torch.rand(2, 5),))


def test_a_tensor_that_is_written_to_is_a_new_one_only_if_nobody_else_sees_its_memory() -> None:
    x = torch.rand(3)
    recorder = Recorder(nn.Module())
    recorder.add_leaf(x, "input", "x", original=x)
    with recorder:
        alone, seen = x + 1, x + 2
        view = seen.view(3, 1)
        alone.mul_(x)
        seen.div_(x)
    names = [operation.name for operation in recorder.graph((alone, view)).operations]
    assert names == ["add", "add", "view", "mul", "div_"]
