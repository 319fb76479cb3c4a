"""A weight that is also reached by a second way cannot be scaled: there it would count as a constant."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from symoptim.errors import TraceError
from symoptim.symmetry.discover import discover
from tests.support.sampling import one_in


class TwoWays(nn.Module):
    """Uses a weight by its name, and once more by another way, behind an activation that no scale passes."""

    def __init__(self, way: Callable[["TwoWays"], Callable[[], Tensor]], *, exported: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.head, self.exported = nn.Linear(4, 2), exported
        self.other = way(self)

    def forward(self, x: Tensor) -> Tensor:
        if not self.exported and x.sum() > -1e9:
            x = x * 1
        hidden = torch.relu(self.first(x))
        hidden = hidden * torch.tanh(linear(x, self.other()))
        return self.head(torch.relu(self.second(hidden)))


def as_buffer(model: TwoWays) -> Callable[[], Tensor]:
    model.register_buffer("view", model.first.weight.detach().t(), persistent=False)
    return lambda: model.view.t()


def as_attribute(model: TwoWays, value: Any) -> Callable[[], Tensor]:
    model.kept = value
    return lambda: model.kept if isinstance(model.kept, Tensor) else model.kept[0]


WAYS: dict[str, Callable[[TwoWays], Callable[[], Tensor]]] = {
    "closure": lambda model: lambda weight=model.first.weight: weight,
    "partial": lambda model: functools.partial(torch.clone, model.first.weight),
    "list": lambda model: as_attribute(model, [model.first.weight]),
    "tuple": lambda model: as_attribute(model, (model.first.weight,)),
    "dictionary": lambda model: as_attribute(model, {0: model.first.weight}),
    "attribute": lambda model: as_attribute(model, model.first.weight.detach()),
    "view": lambda model: as_attribute(model, [model.first.weight.t().t()]),
    "memory shared with NumPy": lambda model: as_attribute(
        model, torch.from_numpy(model.first.weight.detach().numpy())
    ),
    "buffer that is not saved": as_buffer,
}


@pytest.mark.parametrize("exported", [True, False])
@pytest.mark.parametrize("name", one_in(2, WAYS))
def test_a_weight_with_a_second_way_to_it_stays_as_it_is(name: str, exported: bool) -> None:
    torch.manual_seed(0)
    model = TwoWays(WAYS[name], exported=exported).double()
    if name != "closure":
        model.other = WAYS[name](model)
    inputs = torch.randn(5, 3, dtype=torch.float64)
    before = model(inputs)
    spec = discover(model, (inputs,), vouch="*")
    assert bool(spec.recorded) != exported
    assert len(spec) == 4  # of the layer behind it
    spec.rescale_(model, spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(model(inputs), before, rtol=1e-10, atol=1e-12)


ARRAYS: dict[str, tuple[Callable[[TwoWays], Any], Callable[[Any], Tensor]]] = {
    "an array": (lambda model: model.first.weight.detach().numpy(), torch.from_numpy),
    "an array that is copied": (
        lambda model: [model.first.weight.detach().numpy()],
        lambda kept: torch.tensor(kept[0]),
    ),
    "part of an array": (
        lambda model: model.first.weight.detach().numpy()[::-1],
        lambda kept: torch.tensor(kept[::-1].copy()),
    ),
}


@pytest.mark.parametrize("exported", [True, False])
@pytest.mark.parametrize("name", one_in(2, ARRAYS))
def test_an_array_that_shares_memory_with_a_weight_is_a_second_way_to_it(name: str, exported: bool) -> None:
    torch.manual_seed(0)
    keep, read = ARRAYS[name]
    model = TwoWays(lambda model: lambda: model.first.weight, exported=exported).double()
    model.kept = keep(model)
    model.__class__ = WithArray
    model.read = read
    inputs = torch.randn(5, 3, dtype=torch.float64)
    before = model(inputs)
    spec = discover(model, (inputs,), vouch="*")
    assert len(spec) == 4
    spec.rescale_(model, spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(model(inputs), before, rtol=1e-10, atol=1e-12)


class WithArray(TwoWays):
    """Makes its second weight of what it keeps, in each call."""

    def forward(self, x: Tensor) -> Tensor:
        self.other = functools.partial(self.read, self.kept)
        return super().forward(x)


STORAGES: dict[str, Callable[[TwoWays], Tensor]] = {
    "untyped": lambda model: torch.empty(0, dtype=torch.float64).set_(
        model.first.weight.untyped_storage(), 0, (4, 3), (3, 1)
    ),
    "typed": lambda model: torch.empty(0, dtype=torch.float64).set_(
        model.first.weight.data.storage(), 0, (4, 3), (3, 1)
    ),
    "kept": lambda model: torch.empty(0, dtype=torch.float64).set_(model.kept, 0, (4, 3), (3, 1)),
}


@pytest.mark.parametrize("exported", [True, False])
@pytest.mark.parametrize("name", STORAGES)
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_a_tensor_made_of_a_storage_is_refused(name: str, exported: bool) -> None:
    model = TwoWays(lambda model: lambda: STORAGES[name](model), exported=exported).double()
    model.other = FromStorage(model, STORAGES[name])
    model.kept = model.first.weight.untyped_storage()
    with pytest.raises(TraceError, match="memory of another one"):
        discover(model, (torch.randn(5, 3, dtype=torch.float64),), vouch="*")


class FromStorage:
    """Follows its model where that is copied, as a lambda does not."""

    def __init__(self, model: TwoWays, make: Callable[[TwoWays], Tensor]) -> None:
        self.models, self.make = [model], make

    def __call__(self) -> Tensor:
        return self.make(self.models[0])


class Copying(TwoWays):
    """Makes a deep copy of its weight, or of the layer, in each call."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.first.weight if self.whole else self.first
        again = copy.deepcopy(weight)
        self.other = lambda: again if isinstance(again, Tensor) else again.weight
        return super().forward(x)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("exported", [True, False])
def test_a_deep_copy_is_a_copy_that_moves(exported: bool, whole: bool) -> None:
    torch.manual_seed(0)
    model = TwoWays(lambda model: lambda: model.first.weight, exported=exported).double()
    model.__class__ = Copying
    model.whole = whole
    inputs = torch.randn(5, 3, dtype=torch.float64)
    assert len(discover(model, (inputs,), vouch="*")) == 4


def test_a_copy_of_a_weight_is_no_second_way_to_it() -> None:
    model = TwoWays(lambda model: as_attribute(model, torch.ones(4, 3)), exported=True)
    assert len(discover(model, (torch.randn(5, 3),))) == 4 + 4


def test_a_weight_that_is_zero_is_no_constant_that_is_zero() -> None:
    """By its second way it may be anything after a step of training."""

    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)
            self.gate = nn.Parameter(torch.zeros(4))
            self.gates = [self.gate]

        def forward(self, x: Tensor) -> Tensor:
            return x[:, :2] + self.second(self.first(x).tanh() * self.gates[0])

    assert len(discover(Zero(), (torch.randn(5, 3),), vouch="*")) == 0
