"""Sizes at which a model takes another path are found, and sizes that decide nothing cost nothing."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from symoptim import discover
from symoptim.errors import PathWarning
from symoptim.symmetry.paths import survey
from symoptim.symmetry.size_search import MOST_ROUNDS
from symoptim.symmetry.variations import Call
from tests.support.other_paths import SHORT, W, own, table, x
from tests.support.sampling import one_in
from tests.support.size_paths import A_B, SIZED, by_length

FAR = "blocks of 64", "more than 400.5", "half of it", "tens above 300", "bytes"
BEHIND = "ladder", "ladder, from above", "halved"
ONE = "one row, and more than ten", "one step, and more than 1e2", "one row of one step"
TIED = "in fours", "ladder in fours", "every other row", "many windows"


@pytest.mark.parametrize("name", one_in(2, [*FAR, *BEHIND, *ONE, *TIED]))
def test_sizes_at_which_the_path_changes_are_found_and_tried(name: str) -> None:
    case = SIZED[name]
    torch.manual_seed(0)
    spec = discover(case.make(), case.example)
    assert not len(spec)
    assert any("sizes of the inputs decide" in sentence for sentence in spec.paths)


def test_a_size_that_decides_and_cannot_be_tried_is_in_doubt() -> None:
    case = SIZED["pairs"]
    with pytest.warns(PathWarning, match="other paths"):
        spec = discover(case.make(), case.example)
    assert not len(spec)
    assert any("no other size that was tried is taken" in sentence for sentence in spec.paths)
    assert len(discover(case.make(), case.example, vouch=[""])) == 6


def test_a_size_that_is_too_large_to_be_tried_is_in_doubt() -> None:
    with pytest.warns(PathWarning, match="other paths"):
        spec = discover(by_length(lambda n: n // 1024 > 99)(), SHORT)
    assert not len(spec)
    assert [
        sentence for sentence in spec.paths if "too large to be tried" in sentence and "102400" in sentence
    ]
    assert sum("too large to be tried" in sentence for sentence in spec.paths) == 1


def test_into_how_many_parts_torch_splits_is_compared() -> None:
    def split(m: Any, x: Tensor) -> Tensor:
        parts = x.split(40, dim=1)
        return m.b(
            torch.cat([m.a(one).tanh() if number else m.a(one).relu() for number, one in enumerate(parts)], 1)
        )

    spec = discover(own(split, **A_B)(), SHORT)
    assert not len(spec)
    assert any(
        "sizes of the inputs decide the path" in sentence and "41" in sentence for sentence in spec.paths
    )


def test_comparisons_without_an_end_are_said() -> None:
    def chunks(m: Any, x: Tensor) -> Tensor:
        done = 0
        while done < x.shape[1]:
            done += 8
        return m.b(torch.relu(m.a(x)) * done)

    sentences = survey(own(chunks, **A_B)(), [Call(SHORT, {})]).sentences
    assert any("more sizes are compared" in sentence for sentence in sentences)
    assert any(f"{8 * MOST_ROUNDS + 1} too" in sentence for sentence in sentences)


class Flat(nn.Module):
    """A convolution whose places all meet weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3), nn.Linear(6 * 36, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] < 8 or x.shape[-2] * x.shape[-1] > 4096:
            raise ValueError("too small or too large")
        return self.second(torch.relu(self.first(x)).flatten(1))


def checked(m: Any, x: Tensor) -> Tensor:
    assert x.shape[1] == 5
    return m.b(torch.relu(m.a(x + m.table)))


def not_longer(m: Any, x: Tensor) -> Tensor:
    assert x.shape[1] <= 8
    return m.b(torch.relu(m.a(x + m.table[: x.shape[1]])))


QUIET: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "flat": (Flat, (x(2, 3, 8, 8),)),
    "flat, one row": (Flat, (x(1, 3, 8, 8),)),
    "of one length": (own(checked, table=table(5, W), **A_B), SHORT),
    "of at most a length": (own(not_longer, table=table(8, W), **A_B), (x(2, 8, W),)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 6, 3, bias=False), nn.InstanceNorm1d(6), nn.ReLU(), nn.Conv1d(6, 2, 1)
        ),
        (x(2, 3, 8),),
    ),
}


@pytest.mark.parametrize("name", one_in(2, QUIET))
def test_sizes_that_weights_ask_for_decide_nothing(name: str) -> None:
    make, example = QUIET[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PathWarning)
        spec = discover(make(), example)
    assert len(spec) >= 6
    assert not any("taken" in sentence or "too large" in sentence for sentence in spec.paths)


def by_blocks(m: Any, x: Tensor) -> Tensor:
    """Beyond ten steps whole blocks of a number of steps alone are taken."""
    h = m.a(x).relu()
    return m.b(h.view(len(h), -1, m.steps, 6).tanh().view(h.shape) if x.shape[1] > 10 else h)


def test_where_a_size_is_refused_longer_inputs_are_tried_or_it_is_in_doubt() -> None:
    model = own(by_blocks, **A_B)()
    model.steps = 8
    spec = discover(model, SHORT)
    assert not len(spec)
    assert any("holds at size" in sentence and "16" in sentence for sentence in spec.paths)
    model.steps = 13  # of which no size that is tried is a multiple
    with pytest.warns(PathWarning, match="beyond it are not taken"):
        assert not len(discover(model, SHORT))
