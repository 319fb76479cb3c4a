"""What the paper claims about its MNIST experiments, as data: to add a claim, add a record.

A claim is a sentence and the comparisons it stands or falls with, each between two cells of Table 2, about
their means or their standard deviations; :mod:`.judge` tests them all as one family.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from symoptim.paper.table2.cells import ARCHITECTURES
from symoptim.paper.table2.cells import SCHEDULES as SCHEDULE_WORDS
from symoptim.paper.table2.published import Key

DEPTHS = (2, 4)
SCHEDULES = ("exponential", "bold")
UPDATES = ("b-sgd", "sm", "un")
INVARIANT = ("sm", "un")

NAMES = {"b-sgd": "B-SGD", "sm": "SM", "un": "UN"}

MARGIN = 0.003
"""Errors that differ by less than this "differ little": in the paper's own table, of which it says so, 2 and
4 layers differ by up to .0024 on Arch2."""


@dataclass(frozen=True, slots=True)
class LowerMean:
    """The mean error of ``lower`` is below that of ``higher``."""

    lower: Key
    higher: Key


@dataclass(frozen=True, slots=True)
class LowerSpread:
    """The standard deviation of ``lower`` is below that of ``higher``."""

    lower: Key
    higher: Key


@dataclass(frozen=True, slots=True)
class CloseMeans:
    """The mean errors differ by less than ``MARGIN``."""

    lower: Key
    higher: Key


Comparison = LowerMean | LowerSpread | CloseMeans


def describe(comparison: Comparison) -> str:
    """A comparison in words: first what both sides share.

    >>> describe(LowerMean(_arch2(2, "bold", "sm"), _arch2(2, "bold", "b-sgd")))
    '2 layers, bold driver, Arch2: SM below B-SGD'
    """
    match comparison:
        case LowerMean():
            relation = "below"
        case LowerSpread():
            relation = "less spread than"
        case CloseMeans():
            relation = "close to"
    sides = list(zip(_words(comparison.lower), _words(comparison.higher), strict=True))
    shared = ", ".join(one for one, other in sides if one == other)
    lower, higher = (" ".join(side[k] for side in sides if side[0] != side[1]) for k in (0, 1))
    return f"{shared}: {lower} {relation} {higher}"


def _words(key: Key) -> tuple[str, str, str, str]:
    return (
        f"{key.depth} layers",
        SCHEDULE_WORDS[key.schedule],
        ARCHITECTURES[key.architecture],
        NAMES[key.update],
    )


@dataclass(frozen=True, slots=True)
class EndsBy:
    """Every run of a schedule ends by that epoch."""

    schedule: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NotTested:
    """The records cannot tell, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper and what it is judged by."""

    number: int
    text: str
    evidence: tuple[Comparison, ...] | EndsBy | NotTested


def _rows() -> Iterator[tuple[int, str]]:
    yield from ((depth, schedule) for depth in DEPTHS for schedule in SCHEDULES)


def _arch2(depth: int, schedule: str, update: str) -> Key:
    return Key(depth, schedule, "arch2", update)


def _arch1(depth: int, schedule: str, update: str) -> Key:
    return Key(depth, schedule, "arch1", update)


def _all_cells(depth: int) -> Iterator[Key]:
    for schedule in SCHEDULES:
        for update in UPDATES:
            yield _arch1(depth, schedule, update)
            yield _arch2(depth, schedule, update)


_ARCH2_BELOW_ARCH1 = [(_arch2(*row, update), _arch1(*row, update)) for row in _rows() for update in UPDATES]

CLAIMS: tuple[Claim, ...] = (
    Claim(1, "Arch2 is significantly better than Arch1.", tuple(LowerMean(*p) for p in _ARCH2_BELOW_ARCH1)),
    Claim(
        2,
        "Arch1 has high means and large deviations for all three updates.",
        (
            *(LowerMean(*pair) for pair in _ARCH2_BELOW_ARCH1),
            *(LowerSpread(*pair) for pair in _ARCH2_BELOW_ARCH1),
        ),
    ),
    Claim(
        3,
        "On 4-layer Arch1 neither schedule is superior: the bold driver improves B-SGD, worsens SM and UN.",
        (
            LowerMean(_arch1(4, "bold", "b-sgd"), _arch1(4, "exponential", "b-sgd")),
            *(LowerMean(_arch1(4, "exponential", u), _arch1(4, "bold", u)) for u in INVARIANT),
        ),
    ),
    Claim(
        4,
        "On Arch1 exponential decay with UN is best.",
        tuple(
            LowerMean(_arch1(depth, "exponential", "un"), _arch1(depth, schedule, update))
            for depth in DEPTHS
            for schedule in SCHEDULES
            for update in UPDATES
            if (schedule, update) != ("exponential", "un")
        ),
    ),
    Claim(
        5,
        "On Arch2 with the bold driver SM and UN are much better than B-SGD.",
        tuple(
            LowerMean(_arch2(depth, "bold", update), _arch2(depth, "bold", "b-sgd"))
            for depth in DEPTHS
            for update in INVARIANT
        ),
    ),
    Claim(
        6,
        "On Arch2 with the bold driver both mean and deviation are lowest for SM and UN.",
        tuple(
            kind(_arch2(depth, "bold", update), _arch2(depth, "bold", "b-sgd"))
            for kind in (LowerMean, LowerSpread)
            for depth in DEPTHS
            for update in INVARIANT
        ),
    ),
    Claim(
        7,
        "On Arch2 the bold driver beats exponential decay for all updates.",
        tuple(
            LowerMean(_arch2(depth, "bold", update), _arch2(depth, "exponential", update))
            for depth in DEPTHS
            for update in UPDATES
        ),
    ),
    Claim(
        8,
        "The best results of all are those of Arch2 with SM or UN and the bold driver.",
        tuple(
            LowerMean(_arch2(depth, "bold", update), other)
            for depth in DEPTHS
            for update in INVARIANT
            for other in _all_cells(depth)
            if other not in [_arch2(depth, "bold", best) for best in INVARIANT]
        ),
    ),
    Claim(
        9,
        "On Arch2 2 layers with SM and the bold driver beat 4 layers with B-SGD and exponential decay.",
        (LowerMean(_arch2(2, "bold", "sm"), _arch2(4, "exponential", "b-sgd")),),
    ),
    Claim(
        10,
        "2 and 4 layers differ little on Arch2.",
        tuple(
            CloseMeans(_arch2(4, schedule, update), _arch2(2, schedule, update))
            for schedule in SCHEDULES
            for update in UPDATES
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
