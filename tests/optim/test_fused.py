"""Which parameters are launched first on a device, and in what order the others are looked at."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from symoptim.optim.fused import _parted


def entries_of(sizes: list[int], *, is_cuda: bool = True) -> list[Any]:
    """All that is asked of entries."""
    return [
        SimpleNamespace(place=place, parameter=SimpleNamespace(is_cuda=is_cuda, numel=lambda size=size: size))
        for place, size in enumerate(sizes)
    ]


def places(entries: list[Any]) -> list[int]:
    return [entry.place for entry in entries]


def test_the_few_that_hold_most_are_first_and_the_others_stay_in_order() -> None:
    first, rest = _parted(entries_of([3, 900, 1, 2, 4, 800, 5, 6]))
    assert places(first) == [1, 5]
    assert places(rest) == [0, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_in_one_of_the_two(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([0, 1, 10, 10_000]) for _ in range(draw.randint(1, 40))]
    first, rest = _parted(entries_of(sizes))
    assert first
    assert sorted(places(first) + places(rest)) == list(range(len(sizes)))
    assert places(rest) == sorted(places(rest))


def test_on_a_cpu_all_are_first() -> None:
    first, rest = _parted(entries_of([3, 900, 1, 2, 4, 800, 5, 6], is_cuda=False))
    assert places(first) == list(range(8))
    assert not rest
