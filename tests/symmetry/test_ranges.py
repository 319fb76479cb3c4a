"""Indices that a CPU refuses are refused before a device stops at them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from symoptim import discover
from symoptim.errors import TraceError
from symoptim.symmetry.ranges import OutOfRangeError, RangesChecked, require_in_range
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
