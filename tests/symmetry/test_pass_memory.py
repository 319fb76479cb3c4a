"""Passes on inputs that nobody has given take no more memory than they may, and leave none behind."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim import discover
from symoptim.errors import PathWarning, TraceError
from symoptim.symmetry import paths
from symoptim.symmetry.failures import Refusal, refusal_of
from symoptim.symmetry.pass_memory import TooLargeError
from symoptim.symmetry.record import record


class Scores(nn.Module):
    """Attention over all pairs, of windows of a thousand steps."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 1000:
            x = x[:, -1000:].tanh()
        h = self.a(x).relu()
        return self.b((h @ h.mT).softmax(-1) @ h)


def test_a_result_that_is_too_large_ends_a_trial_before_it_is_computed(monkeypatch: Any) -> None:
    graph = record(Scores(), (torch.rand(1, 500, 4),))
    assert 10**6 < graph.memory < 10**7
    with pytest.raises(TooLargeError, match=r"has a result of 1,000,000 bytes"):
        record(Scores(), (torch.rand(1, 500, 4),), room=900_000)
    monkeypatch.setattr(paths, "LARGEST_PASS", 1_000_000)
    with pytest.warns(PathWarning, match=r"too large to be tried \(give it in inputs=\): 1001"):
        discover(Scores(), (torch.rand(1, 8, 4),))


@pytest.mark.parametrize("function", [lambda: torch.ones(10**4, 10**4), lambda: torch.arange(10**8)])
def test_tensors_that_are_made_of_numbers_alone_count(function: Any) -> None:
    class Makes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + function().sum()

    with pytest.raises(TooLargeError):
        record(Makes(), (torch.rand(2),), room=10**6)


def test_memory_that_is_not_there_is_no_refusal_of_the_model() -> None:
    class Allocates(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.empty(10**15, dtype=torch.uint8).sum()

    with pytest.raises(TraceError) as error:
        record(Allocates(), (torch.rand(2),))
    assert refusal_of(error.value) is Refusal.TOO_LARGE


def test_why_a_trial_fails_is_told_apart() -> None:
    def refusal(function: Any) -> Refusal:
        class Fails(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return function(x)

        with pytest.raises(TraceError) as error:
            record(Fails(), (torch.rand(6),), room=10**6)
        return refusal_of(error.value)

    def raises(_: Tensor) -> Tensor:
        raise ValueError("too long")

    def asserts(x: Tensor) -> Tensor:
        assert len(x) < 5
        return x

    assert refusal(raises) is Refusal.RAISED
    assert refusal(asserts) is Refusal.RAISED
    assert refusal(lambda x: x.view(4, 2)) is Refusal.FAILED
    assert refusal(lambda x: x @ torch.ones(7)) is Refusal.FAILED


def test_an_error_that_was_looked_at_holds_nothing() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            held.append(weakref.ref(y := torch.rand(100)))
            return x.view(7) + y

    held: list[weakref.ref[Tensor]] = []
    gc.disable()
    try:
        refused = tried(Fails())
        assert refused is Refusal.FAILED
        assert held
        assert all(one() is None for one in held)
    finally:
        gc.enable()


def tried(model: nn.Module) -> Refusal | None:
    try:
        record(model, (torch.rand(6),), room=10**6)
    except TraceError as error:
        return refusal_of(error)
    return None
