"""How models are called: without caches, and with arguments that torch does not see into."""

import functools
from collections import UserDict, namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.errors import OptionError, TraceError
from symoptim.symmetry.calls import prepared, unpacked
from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover


class Cache:
    """A class that torch does not know as a tree."""

    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


class Cached(nn.Module):
    """Returns its hidden layer in a cache, if not asked to leave that out."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, use_cache: bool | None = None) -> dict[str, Any]:
        hidden = torch.relu(self.first(x))
        found = {"logits": self.head(hidden)}
        use_cache = self.config.use_cache if use_cache is None else use_cache
        return {**found, "cache": Cache(hidden)} if use_cache else found


class Wrapped(nn.Module):
    """Hands on what it is called with."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.config = inner.config

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.inner(*arguments, **keywords)


class Tuner(nn.Module):
    """As PEFT's: hands on what it is called with, and has whatever attributes its model has."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.model.forward(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.model, name)


class Tuned(Tuner):
    """The same around it, with names of its own."""

    def forward(self, x: Tensor, labels: Tensor | None = None, **keywords: Any) -> Any:
        return self.model(x, **keywords)


class WithoutConfig(nn.Module):
    """Hands on keywords, and nothing else."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, **keywords: Any) -> Any:
        return self.inner(x, **keywords)


class WithoutKeywords(WithoutConfig):
    """Does not hand them on."""

    def forward(self, x: Tensor) -> Any:
        return self.inner(x)


def test_a_cache_that_cannot_be_left_out_is_an_error_with_the_way_out() -> None:
    with pytest.raises(TraceError, match="use_cache = False in its config"):
        discover(WithoutKeywords(Cached()), (torch.randn(5, 3),))


@pytest.mark.parametrize(
    "make",
    [
        Cached,
        lambda: Wrapped(Cached()),
        lambda: Tuned(Tuner(Cached())),
        lambda: WithoutConfig(Cached()),
        lambda: WithoutConfig(Tuned(Tuner(Cached()))),
    ],
    ids=["the model", "wrapped", "as PEFT does", "without config", "twice"],
)
def test_a_model_that_returns_a_cache_by_default_is_called_without_it(make: Any) -> None:
    model, inputs = make(), (torch.randn(5, 3),)
    spec = discover(model, inputs)
    assert len(spec) == 4
    assert certify(spec, model, inputs).holds


def test_what_the_call_gives_itself_stays() -> None:
    model, x = Cached(), torch.randn(5, 3)
    assert prepared(model, (x,), {"use_cache": True}) == {"use_cache": True}
    assert prepared(model, (x, True)) == {}


def test_a_model_without_such_a_keyword_is_called_as_it_is() -> None:
    model = nn.Linear(3, 2)
    model.config = SimpleNamespace(use_cache=True)  # pyright: ignore[reportAttributeAccessIssue]
    assert prepared(model, ()) == {}
    assert prepared(nn.Linear(3, 2), (), {"input": 1}) == {"input": 1}


@dataclass
class Batch:
    ids: Tensor
    mask: Tensor
    name: str = "train"
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frozen:
    ids: Tensor
    mask: Tensor


class Encoding(UserDict):
    """As tokenizers of Hugging Face return them."""

    def __getattr__(self, name: str) -> Any:
        return (
            vars(self)["data"][name] if name in vars(self).get("data", ()) else super().__getattribute__(name)
        )


class Dictionary(dict):
    ids = property(lambda self: self["ids"])
    mask = property(lambda self: self["mask"])


Pair = namedtuple("Pair", ["ids", "mask"])


class Named(Pair):
    """A class derived from a named tuple."""


class Model(nn.Module):
    """Adds, for every token, a row of a table and, where the mask is not zero, another feature."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.other, self.last = nn.Embedding(7, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, batch: Any) -> Tensor:
        return self.last(torch.relu(self.table(batch.ids) + self.other(batch.mask)))


def ids() -> Tensor:
    return torch.tensor([[1, 2, 2]])


def others() -> tuple[Tensor, Tensor]:
    return torch.tensor([[0, 6, 3, 5]]), torch.randn(1, 4, 3)


CLASSES = [Batch, Frozen, lambda ids, mask: Encoding(ids=ids, mask=mask), Pair, Named]
CLASSES += [lambda ids, mask: Dictionary(ids=ids, mask=mask)]


@pytest.mark.parametrize("make", CLASSES)
def test_tensors_in_an_argument_are_no_constants(make: Any) -> None:
    torch.manual_seed(1)
    model = Model().double()
    zeros = torch.zeros(1, 3, 3, dtype=torch.float64)  # which another call will not have
    spec = discover(model, (make(ids(), zeros),))
    assert certify(spec, model, (make(ids(), zeros + 1),)).holds
    tokens, mask = others()
    batch = make(tokens, mask.double())
    before = model(batch)
    spec.rescale_(model, spec.random(seed=1, spread=2.0))
    torch.testing.assert_close(model(batch), before, rtol=1e-10, atol=1e-12)
    assert len(spec) == 4  # units between: all rows of the table, the other layer, columns of the last


def test_an_argument_by_name_and_one_inside_another_are_unpacked() -> None:
    class Outer(Model):
        def forward(self, x: Tensor, *, batch: Batch) -> Tensor:
            assert batch.name == "train"
            return super().forward(batch.more["inner"][0]) + x

    zeros = torch.zeros(1, 3, 3)
    inner = Batch(ids(), zeros)
    batch = Batch(ids(), zeros, more={"inner": [inner]})
    assert len(discover(Outer(), (torch.rand(2),), {"batch": batch})) == 4


def test_what_needs_no_unpacking_is_left_as_it_is() -> None:
    model, x = nn.Linear(2, 2), torch.rand(1, 2)
    same, inputs, keywords = unpacked(model, (x, {"a": [x]}, Batch), {"b": (1, None)})
    assert same is model
    assert inputs[0] is x
    assert inputs[1]["a"][0] is x
    assert keywords == {"b": (1, None)}


def test_a_model_keeps_nothing_of_being_unpacked() -> None:
    class Keeping(Model):
        def forward(self, batch: Any) -> Tensor:
            self.kept = batch.mask * 1
            return super().forward(batch)

    model, batch = Keeping(), Batch(ids(), torch.rand(1, 3, 3))
    before = dict(vars(model))
    discover(model, (batch,))
    assert vars(model) == before
    assert set(vars(batch)) == {"ids", "mask", "name", "more"}


class Data:
    """As PyTorch Geometric has it: tensors in an object in an object."""

    def __init__(self, ids: Tensor, mask: Tensor) -> None:
        self.store = Store()
        self.store.mapping = {"ids": ids, "mask": mask}

    def __getattr__(self, name: str) -> Any:
        return self.store.mapping[name]


class Store:
    __slots__ = ("mapping",)


class Mixed(Dictionary):
    """A dictionary with a tensor besides."""

    def __init__(self, extra: Tensor, **items: Tensor) -> None:
        super().__init__(**items)
        self.extra = extra


def closed_over(x: Tensor) -> Any:
    return lambda: x


@pytest.mark.parametrize(
    "argument",
    [
        Data(torch.ones(2), torch.ones(2)),
        Mixed(torch.ones(2), ids=torch.ones(2)),
        functools.partial(torch.add, torch.ones(2)),
        closed_over(torch.ones(2)),
        {torch.ones(2)},
        nn.Linear(2, 2),
        torch.ones(2).numpy(),
    ],
    ids=lambda one: type(one).__name__,
)
def test_other_objects_that_hold_tensors_are_refused_by_name(argument: Any) -> None:
    with pytest.raises(OptionError, match=rf"argument is a .*{type(argument).__name__}, .*register"):
        discover(Model(), (), {"batch": [argument]})
