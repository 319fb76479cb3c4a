"""What is refused before an operation is run: indices out of range, and results that are too large."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from symoptim import discover
from symoptim.errors import PathWarning, TraceError
from symoptim.symmetry import paths
from symoptim.symmetry.failures import Refusal, refusal_of
from symoptim.symmetry.limits import OutOfRangeError, RangesChecked, TooLargeError, require_in_range
from symoptim.symmetry.record import record

TABLE = torch.rand(4, 3)
OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "embedding": lambda places: functional.embedding(places, TABLE),
    "embedding_bag": lambda places: functional.embedding_bag(places[None], TABLE),
    "index": lambda places: TABLE[places],
    "index of two": lambda places: TABLE[places, places.clamp(0, 2)],
    "index_select": lambda places: TABLE.index_select(0, places),
    "gather": lambda places: TABLE.gather(0, places[:, None]),
    "take": lambda places: TABLE[:, 0].take(places),
    "scatter_add": lambda places: TABLE.scatter_add(0, places[:, None], torch.ones(2, 1)),
    "index_add": lambda places: TABLE.index_add(0, places, torch.ones(2, 3)),
    "index_put": lambda places: TABLE.index_put((places,), torch.ones(())),
    "nll_loss": lambda places: functional.nll_loss(TABLE[:2, [0, 1, 2, 0]], places),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("places", [[0, 3], [1, 4], [3, -1], [2, -100], [2**40, 0]], ids=str)
def test_what_a_cpu_refuses_is_refused(name: str, places: list[int]) -> None:
    try:
        expected = OPERATIONS[name](torch.tensor(places))
    except (IndexError, RuntimeError):
        with RangesChecked(safe=()), pytest.raises(IndexError, match="which is"):
            OPERATIONS[name](torch.tensor(places))
    else:
        with RangesChecked(safe=()):
            assert torch.equal(OPERATIONS[name](torch.tensor(places)), expected)


def test_on_a_cpu_nothing_is_looked_at() -> None:
    require_in_range("embedding", (TABLE, torch.tensor([7])))


def test_a_call_that_was_refused_is_not_made_unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Looking(torch.nn.Embedding):
        def forward(self, input: Tensor) -> Tensor:
            calls.append(input.shape[0])
            return super().forward(input)

    monkeypatch.setattr(require_in_range, "__defaults__", ((),))  # as on a CUDA device
    with pytest.raises(TraceError, match=r"fails on these inputs: embedding: an index is out of range"):
        record(Looking(4, 2), (torch.tensor([4]),))
    assert calls == [1]


def test_no_kernel_gets_an_index_out_of_range_in_discover(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[type[Exception]] = []

    class Noting(torch.nn.Embedding):
        def forward(self, input: Tensor) -> Tensor:
            try:
                return super().forward(input)
            except Exception as failure:
                refused.append(type(failure))
                raise

    monkeypatch.setattr(require_in_range, "__defaults__", ((),))  # as on a CUDA device
    monkeypatch.setattr(RangesChecked.__init__, "__defaults__", ((),))
    with pytest.raises(TraceError, match="an index is out of range, which is 0 to 3"):
        discover(Noting(4, 2), (torch.tensor([4]),))
    assert refused
    assert set(refused) == {OutOfRangeError}


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
