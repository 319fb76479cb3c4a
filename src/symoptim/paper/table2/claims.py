"""What the paper claims about its MNIST experiments, as data: to add a claim, add a record.

A claim is a sentence and the comparisons it stands or falls with, each between two cells of Table 2, about
their means or their standard deviations; :mod:`.judge` tests them all as one family.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from symoptim.paper.table2.cells import ARCHITECTURES
from symoptim.paper.table2.cells import SCHEDULES as SCHEDULE_TITLES
from symoptim.paper.table2.published import Key
from symoptim.paper.updates import info

DEPTHS = (2, 4)
SCHEDULES = ("exponential", "bold")
UPDATES = ("b-sgd", "sm", "un")
INVARIANT = ("sm", "un")

MARGIN = 0.003
"""Errors that differ by less than this "differ little": in the paper's own table, of which it says so, 2 and
4 layers differ by up to .0024 on Arch2."""

Kind = Literal["mean", "spread", "close"]
"""The mean of ``lower`` is below that of ``higher``, or its deviation; or the means are within ``MARGIN``."""
RELATIONS: dict[Kind, str] = {"mean": "below", "spread": "less spread than", "close": "close to"}


class Comparison(NamedTuple):
    """A comparison of two cells."""

    kind: Kind
    lower: Key
    higher: Key


def describe(comparison: Comparison) -> str:
    """A comparison in words: first what both sides share.

    >>> describe(Comparison("mean", Key(2, "bold", "arch2", "sm"), Key(2, "bold", "arch2", "b-sgd")))
    '2 layers, bold driver, Arch2: SM below B-SGD'
    """
    sides = list(zip(_words(comparison.lower), _words(comparison.higher), strict=True))
    shared = ", ".join(one for one, other in sides if one == other)
    lower, higher = (" ".join(side[k] for side in sides if side[0] != side[1]) for k in (0, 1))
    return f"{shared}: {lower} {RELATIONS[comparison.kind]} {higher}"


def _words(key: Key) -> tuple[str, ...]:
    schedule, architecture = SCHEDULE_TITLES[key.schedule], ARCHITECTURES[key.architecture]
    return f"{key.depth} layers", schedule, architecture, info(key.update).title


@dataclass(frozen=True, slots=True)
class EndsBy:
    """Every run of a schedule ends by that epoch."""

    schedule: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NotTested:
    """The records cannot tell, and why."""

    reason: str


class Claim(NamedTuple):
    """A claim of the paper and what it is judged by."""

    number: int
    text: str
    evidence: tuple[Comparison, ...] | EndsBy | NotTested


def _arch1(depth: int, schedule: str, update: str) -> Key:
    return Key(depth, schedule, "arch1", update)


def _arch2(depth: int, schedule: str, update: str) -> Key:
    return Key(depth, schedule, "arch2", update)


def _all(kind: Kind, pairs: Iterable[tuple[Key, Key]]) -> tuple[Comparison, ...]:
    return tuple(Comparison(kind, lower, higher) for lower, higher in pairs)


_ROWS = list(product(DEPTHS, SCHEDULES))
_ARCH2_BELOW_ARCH1 = [(_arch2(*row, update), _arch1(*row, update)) for row in _ROWS for update in UPDATES]
_BOLD_BELOW_BASELINE = [
    (_arch2(depth, "bold", update), _arch2(depth, "bold", "b-sgd"))
    for depth in DEPTHS
    for update in INVARIANT
]
_BEST = [_arch2(depth, "bold", update) for depth in DEPTHS for update in INVARIANT]

CLAIMS: tuple[Claim, ...] = (
    Claim(1, "Arch2 is significantly better than Arch1.", _all("mean", _ARCH2_BELOW_ARCH1)),
    Claim(
        2,
        "Arch1 has high means and large deviations for all three updates.",
        _all("mean", _ARCH2_BELOW_ARCH1) + _all("spread", _ARCH2_BELOW_ARCH1),
    ),
    Claim(
        3,
        "On 4-layer Arch1 neither schedule is superior: the bold driver improves B-SGD, worsens SM and UN.",
        (
            Comparison("mean", _arch1(4, "bold", "b-sgd"), _arch1(4, "exponential", "b-sgd")),
            *_all("mean", ((_arch1(4, "exponential", u), _arch1(4, "bold", u)) for u in INVARIANT)),
        ),
    ),
    Claim(
        4,
        "On Arch1 exponential decay with UN is best.",
        _all(
            "mean",
            (
                (_arch1(depth, "exponential", "un"), _arch1(depth, schedule, update))
                for depth, schedule, update in product(DEPTHS, SCHEDULES, UPDATES)
                if (schedule, update) != ("exponential", "un")
            ),
        ),
    ),
    Claim(
        5,
        "On Arch2 with the bold driver SM and UN are much better than B-SGD.",
        _all("mean", _BOLD_BELOW_BASELINE),
    ),
    Claim(
        6,
        "On Arch2 with the bold driver both mean and deviation are lowest for SM and UN.",
        _all("mean", _BOLD_BELOW_BASELINE) + _all("spread", _BOLD_BELOW_BASELINE),
    ),
    Claim(
        7,
        "On Arch2 the bold driver beats exponential decay for all updates.",
        _all(
            "mean",
            (
                (_arch2(depth, "bold", update), _arch2(depth, "exponential", update))
                for depth, update in product(DEPTHS, UPDATES)
            ),
        ),
    ),
    Claim(
        8,
        "The best results of all are those of Arch2 with SM or UN and the bold driver.",
        _all(
            "mean",
            (
                (best, other)
                for best in _BEST
                for schedule, update, arch in product(SCHEDULES, UPDATES, (_arch1, _arch2))
                for other in [arch(best.depth, schedule, update)]
                if other not in _BEST
            ),
        ),
    ),
    Claim(
        9,
        "On Arch2 2 layers with SM and the bold driver beat 4 layers with B-SGD and exponential decay.",
        (Comparison("mean", _arch2(2, "bold", "sm"), _arch2(4, "exponential", "b-sgd")),),
    ),
    Claim(
        10,
        "2 and 4 layers differ little on Arch2.",
        _all(
            "close",
            (
                (_arch2(4, schedule, update), _arch2(2, schedule, update))
                for schedule, update in product(SCHEDULES, UPDATES)
            ),
        ),
    ),
    Claim(11, "Bold-driver runs end by epoch 30.", EndsBy("bold", 30)),
    Claim(
        12,
        "SM and UN cost no computational efficiency.",
        NotTested("runs that train together have no time of their own; that takes a benchmark"),
    ),
    Claim(
        13,
        "SM and UN act as a regularizer without a hyper-parameter.",
        NotTested("the paper offers it as a thought, and has no experiment for it"),
    ),
)
