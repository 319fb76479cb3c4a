"""Watching one pass: it finds what export finds, and goes where export cannot."""

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from symoptim.errors import PathWarning, TraceError
from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover as discover_with_doubts
from symoptim.symmetry.record import Series, record
from symoptim.symmetry.recorder import Recorder
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.sampling import one_in
from tests.support.zoo import ZOO, caught, group_of
from tests.support.zoo.animal import Lambda

# No other path is sought in these networks: they ask for values.
discover = functools.partial(discover_with_doubts, vouch="*")

QUICK = (
    "arch2 training",
    "arch2 evaluation",
    "u-net",
    "attention, fused",
    "group norm",
    "lstm",
    "weight norm",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ZOO]
)
def test_a_recorded_pass_has_the_symmetries_of_an_exported_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model, arguments, _), exported = caught(name), group_of(name)
    before = copy.deepcopy(model.state_dict())

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("cannot be exported\nfor many reasons")

    monkeypatch.setattr(torch.export, "export", refuse)
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
    assert spec.pinned == {"gt": 1}
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


class Branch(nn.Module):
    """Cannot be exported; what it does with its hidden features is up to a function."""

    def __init__(self, function: Callable[["Branch", Tensor, Tensor], object]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)
        self.register_buffer("state", torch.rand(5, 4))
        self.function = function

    def forward(self, x: Tensor) -> object:
        if x.sum() > -1e9:
            x = x.mul_(1)
        return self.function(self, x, torch.relu(self.first(x)))


def spec_of(function: Callable[[Branch, Tensor, Tensor], object]) -> SymmetrySpec:
    spec = discover(Branch(function), (torch.rand(5, 3),))
    assert spec.recorded
    return spec


class Box:
    """Holds a tensor where nobody sees it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_outputs_that_cannot_be_seen_are_refused() -> None:
    with pytest.raises(TraceError, match=r"returns a Box.*register the class"):
        spec_of(lambda self, x, h: Box(self.second(h)))


def put_in_place(self: Branch, x: Tensor, h: Tensor) -> Tensor:
    output = self.second(h + self.state)
    self.state = h
    return output


def test_a_buffer_that_is_put_in_place_has_the_scale_it_had() -> None:
    spec = spec_of(put_in_place)
    assert len(spec) == 4
    assert int(spec.moves(["state"]).sum()) == 4


def keep(self: Branch, x: Tensor, h: Tensor) -> Tensor:
    self.kept = h.square().mean()
    return self.second(h)


def test_what_is_kept_in_an_attribute_cannot_move_and_is_not_left_behind() -> None:
    model = Branch(keep)
    assert len(discover(model, (torch.rand(5, 3),))) == 0
    assert not hasattr(model, "kept")


def write(self: Branch, x: Tensor, h: Tensor) -> Tensor:
    output = self.second(h)
    x.copy_(h[:, :3])
    return output


def test_what_is_written_into_an_input_cannot_move() -> None:
    assert int(spec_of(write).moves(["first.weight"]).sum()) == 1  # the one feature that is not written


def test_what_torch_writes_below_is_pinned() -> None:
    padded = spec_of(lambda self, x, h: self.second(pad_sequence([h[:2], h[2:]])))
    assert len(padded) == 0
    assert any("in shared memory" in name for name in padded.unknown)


def test_a_tensor_that_is_written_to_is_a_new_one_only_if_nobody_else_sees_its_memory() -> None:
    x = torch.rand(3)
    recorder = Recorder(nn.Module())
    recorder.add_leaf(x, "input", "x", original=x)
    with recorder:
        alone, seen = x + 1, x + 2
        view = seen.view(3, 1)
        alone.mul_(x)
        seen.div_(x)
    names = [operation.name for operation in recorder.graph((alone, view), {}).operations]
    assert names == ["add", "add", "view", "mul", *["div_ in shared memory"] * 2]


class Attempt(nn.Module):
    """Goes another way where an operation fails."""

    def __init__(self, attempt: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.attempt = nn.Linear(3, 3), attempt

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        try:
            return self.attempt(hidden)
        except (RuntimeError, IndexError):
            return hidden


@pytest.mark.parametrize(
    "attempt",
    [
        torch.linalg.cholesky,
        lambda hidden: hidden @ torch.ones(7, 7),
        lambda hidden: nn.functional.cross_entropy(hidden, torch.tensor([9, 9, 9])),
    ],
    ids=["values", "sizes", "places"],
)
def test_where_an_operation_has_failed_is_noted(attempt: Callable[[Tensor], Tensor]) -> None:
    model = nn.Sequential(nn.Linear(3, 3), Attempt(attempt))
    assert record(model, (torch.rand(3, 3),)).raised == ("1",)
    assert record(nn.Sequential(nn.Linear(3, 3), Attempt(torch.relu)), (torch.rand(3, 3),)).raised == ()


def test_places_are_right_after_a_module_has_failed() -> None:
    attempt = Attempt(nn.Linear(7, 7))
    graph = record(nn.Sequential(attempt, nn.ReLU()), (torch.rand(3, 3),))
    assert graph.raised == ("0.attempt",)
    assert [one.place for one in graph.operations if one.name == "relu"] == ["1"]


def test_no_hook_is_left_behind() -> None:
    discover(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (torch.rand(5, 3),))
    assert not torch.nn.modules.module._has_any_global_hook()


LISTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tensor": lambda x, size: torch.tensor([size, size]).to(x),
    "as_tensor": lambda x, size: torch.as_tensor([size, size]).to(x),
    "new_tensor": lambda x, size: x.new_tensor([size, size]),
    "nested, with numbers": lambda x, size: torch.tensor([[size, 0.0], [size, 1.0]]).to(x)[:, 0],
}


@pytest.mark.parametrize("how", one_in(2, LISTS))
def test_tensors_in_a_list_that_becomes_one_are_no_constants(how: str) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x))) / LISTS[how](x, self.head.weight.abs().max())

    model = Lambda(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2, bias=False)).double()
    x = torch.rand(5, 3, dtype=torch.float64)
    spec = discover(model, (x,))
    assert spec.certify(model, (x,)).holds
    assert len(spec) == int("numbers" not in how)  # all of the head, by which it is divided again
    graph = record(model, (x,))
    assert "stack" in [operation.name for operation in graph.operations]


def test_what_is_asked_of_a_tensor_made_of_a_list_decides() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.head(h.tanh() if torch.tensor([x.sum()])[0] > 1000 else h.relu())

    model = Lambda(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2))
    with pytest.warns(PathWarning, match="values of the inputs"):
        assert len(discover_with_doubts(model, (torch.rand(5, 3),))) == 0


def test_places_at_which_a_tensor_is_split_are_asked_for() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        h, places = self.first(x), (x.sum() > 1000).long().reshape(1)
        return self.head(h.tanh() if len(torch.tensor_split(x, places)[0]) else h.relu())

    model = Lambda(forward, first=nn.Linear(3, 4), head=nn.Linear(4, 2))
    with pytest.warns(PathWarning, match="values of the inputs"):
        assert len(discover_with_doubts(model, (torch.rand(5, 3),))) == 0


class Writes(nn.Linear):
    """Adds one to its weight at every call, if it is to."""

    writes = True

    def forward(self, input: Tensor) -> Tensor:
        if self.writes:
            self.weight.data.add_(1)
        return super().forward(input)


@pytest.mark.parametrize("functional", [True, False])
def test_passes_share_copies_of_parameters_that_none_has_written_to(functional: bool) -> None:
    model, series, x = Writes(2, 2), Series(), torch.rand(3, 2)
    before = model.weight.detach().clone()
    record(model, (x,), series=series, functional=functional)
    assert list(series.copies) == [model.bias]
    assert torch.equal(model.weight, before)
    model.writes = False
    record(model, (x,), series=series, functional=functional)
    copies = dict(series.copies)
    assert torch.equal(copies[model.weight][0], before)
    record(model, (x,), series=series, functional=functional)
    assert series.copies == copies
    with torch.no_grad():
        model.weight.zero_()
    record(model, (x,), series=series, functional=functional)
    assert not series.copies[model.weight][0].any()
