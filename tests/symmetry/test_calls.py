"""Calls of models that return a cache by default."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim.errors import TraceError
from symoptim.symmetry.calls import prepared
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
