"""Attributes that change are noticed, whatever they are; those of others, or too large, do no harm."""

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from symoptim import discover
from symoptim.errors import PathWarning
from symoptim.symmetry.attributes import MOST, PER_MODULE, attributes_of, changing


class LookUpError(RuntimeError):
    """What a proxy raises where there is nothing behind it."""


class Proxy:
    """Refuses whatever it is asked for, except by its class."""

    def __getattr__(self, name: str) -> Any:
        raise LookUpError("working outside of application context")


class Disguised(Proxy):
    """Refuses even to say of which class it is."""

    __class__ = property(lambda self: self.nothing)  # type: ignore[assignment]


class Mute(dict[str, int]):
    """A dictionary that cannot be read."""

    def __len__(self) -> int:
        raise LookUpError("closed")

    def __iter__(self) -> Any:
        raise LookUpError("closed")


class Net(nn.Module):
    """Two layers, and something beside them."""

    def __init__(self, kept: Any = None, *, asks: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.kept, self.asks = nn.Linear(4, 6), nn.Linear(6, 3), kept, asks

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.up(x))
        if self.asks and float(h.sum()) > 1e9:
            h = h + 1
        return self.down(h)


REFUSING: dict[str, Callable[[], Any]] = {
    "proxy": Proxy,
    "proxy in a list": lambda: [Proxy()],
    "without a class": lambda: [Disguised()],
    "dictionary": Mute,
}


@pytest.mark.parametrize("kind", REFUSING)
def test_what_refuses_to_be_looked_into_is_left_alone(kind: str) -> None:
    spec = discover(Net(REFUSING[kind]()), (torch.rand(5, 4),))
    assert (len(spec), spec.paths) == (6, ())
    with pytest.warns(PathWarning, match="other paths"):
        discover(Net(REFUSING[kind](), asks=True), (torch.rand(5, 4),))


def test_what_ends_the_program_is_not_held_up() -> None:
    class Interrupted:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attributes_of(Net([Interrupted()]))


def append(kept: Any) -> None:
    kept.append(3)


CHANGES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "list": ([1], append),
    "far inside": ({"a": [({"b": [1]},)]}, lambda kept: append(kept["a"][0][0]["b"])),
    "deque": (deque([1, 2], maxlen=2), append),
    "array": (np.zeros(3), lambda kept: kept.__setitem__(1, 1.0)),
    "array of objects": (np.array([[1], [2]], dtype=object), lambda kept: kept.__setitem__((0, 0), 5)),
    "inside an array of objects": (
        np.array([{"a": [1]}], dtype=object),
        lambda kept: append(kept[0]["a"]),
    ),
    "bytes": (bytearray(3), append),
    "generator of NumPy": (np.random.default_rng(0), lambda kept: kept.random()),
    "older generator of NumPy": (np.random.RandomState(0), lambda kept: kept.rand()),
    "tensor": ([torch.zeros(2)], lambda kept: kept[0].add_(1)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_are_noticed_and_nothing_else(kind: str) -> None:
    kept, change = CHANGES[kind]
    model = nn.Sequential(Net(kept), Net([1]))
    before = attributes_of(model)
    assert changing(before, attributes_of(model)) == set()
    change(kept)
    assert changing(before, attributes_of(model)) == {"0"}


def test_all_modules_are_named_that_share_what_changes_and_values_may_hold_themselves() -> None:
    kept: list[Any] = [0]
    around: dict[str, Any] = {"kept": kept}
    kept.append(around)
    model = nn.Sequential(Net(kept), Net(around), Net([0]))
    before = attributes_of(model)
    assert changing(before, attributes_of(model)) == set()
    kept[0] += 1
    assert changing(before, attributes_of(model)) == {"0", "1"}


LARGE: dict[str, Callable[[], Any]] = {
    "a list": lambda: list(range(100_000)),
    "many small ones": lambda: [[{"a": number} for number in range(1_000)] for _ in range(100)],
    "a long chain": lambda: {str(number): {"inner": [number] * 5} for number in range(9_000)},
    "an array": lambda: np.zeros(20_000_000),
    "bytes": lambda: bytearray(200_000_000),
}


@pytest.mark.parametrize("kind", LARGE)
def test_no_more_is_looked_at_than_a_number_of_values(kind: str) -> None:
    model = nn.Sequential(Net(LARGE[kind]()), Net([0]))
    found = attributes_of(model)
    assert found.looked_at <= MOST + PER_MODULE * len(list(model.modules()))
    assert found.too_large == {"0"}
    model[1].kept[0] += 1
    assert changing(found, attributes_of(model)) == {"1"}


def test_of_a_long_list_the_length_is_known_and_what_is_beside_it() -> None:
    model = Net(list(range(100_000)))
    before = attributes_of(model)
    model.kept[0] = 7  # this is not seen
    assert changing(before, attributes_of(model)) == set()
    model.kept.append(1)
    assert changing(before, attributes_of(model)) == {""}
    model.kept.pop()
    model.count = 1
    assert changing(before, attributes_of(model)) == {""}


def test_networks_of_many_modules_are_looked_at_as_a_whole() -> None:
    model = nn.Sequential(*(nn.Conv2d(1, 1, 3) for _ in range(2_000)))
    assert attributes_of(model).too_large == set()


def test_what_is_too_large_is_said_and_pins_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = discover(Net(list(range(100_000))), (torch.rand(5, 4),))
    assert len(spec) == 6
    assert spec.paths == (
        "attributes are too large to compare, and may change from call to call: in the model itself",
    )
