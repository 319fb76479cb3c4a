"""What the results of ``sensitivity.py`` come to: best losses, ranges of good rates, gaps between starts."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "sensitivity_cpu_202611.jsonl"
BALANCED, BADLY_SCALED = 1.0, 30.0
"""Spreads of the two starts."""
TOLERANCE = 0.1
"""A rate is good if the loss is that near, in nats, to the best that any update reached on the task."""

TITLES = {
    "sgd": "SGD",
    "sm": "SM",
    "un": "UN",
    "full": "full",
    "geometric": "geometric",
    "adamw": "AdamW",
    "invariant-adamw": "invariant AdamW",
}


class Point(NamedTuple):
    """Losses of all seeds at a rate; none if any of them diverged."""

    rate: float
    losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds; infinite if any diverged."""
        return statistics.fmean(self.losses) if self.losses else float("inf")


class Curve(NamedTuple):
    """Losses of an update on a task, from starts of a spread, by rate."""

    task: str
    update: str
    spread: float
    points: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """Where the mean is lowest."""
        return min(self.points, key=lambda point: point.mean)

    def good(self, target: float) -> int:
        """How many rates are good, the best of all being ``target``."""
        return sum(point.mean <= target + TOLERANCE for point in self.points)

    def at(self, rate: float) -> float:
        """Mean at a rate."""
        return next(point.mean for point in self.points if point.rate == rate)


def read(path: Path) -> list[dict[str, Any]]:
    """Results, without the lines that say where they come from."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "task" in line]


def curves(results: Iterable[dict[str, Any]]) -> list[Curve]:
    """Results by task, update, spread and rate, in the order of the titles; all of as many steps."""
    results = list(results)
    if len(lengths := {one["steps"] for one in results}) > 1:
        raise ValueError(f"results after {sorted(lengths)} steps cannot be one curve: keep a file for each")
    grouped: dict[tuple[str, str, float], dict[float, list[dict[str, Any]]]] = {}
    for one in results:
        key = one["task"], one["update"], one["spread"]
        grouped.setdefault(key, {}).setdefault(one["rate"], []).append(one)
    found = [
        Curve(*key, tuple(_point(rate, by_rate[rate]) for rate in sorted(by_rate)))
        for key, by_rate in grouped.items()
    ]
    return sorted(found, key=lambda curve: list(TITLES).index(curve.update))


def _point(rate: float, runs: Sequence[dict[str, Any]]) -> Point:
    diverged = any(run["diverged"] for run in runs)
    return Point(rate, () if diverged else tuple(run["loss"] for run in runs))


class Gaps(NamedTuple):
    """How far apart two starts end, relative to the loss, over all rates and seeds."""

    stable: float
    """Largest up to the best rate; above it training amplifies what is rounded."""
    largest: float
    """Largest of all pairs of runs of which none diverged."""
    apart: int
    """Pairs of which only one diverged."""


def gaps(results: Iterable[dict[str, Any]], curve: Curve) -> Gaps:
    """Compare runs of an update that differ in the start alone.

    Args:
        results: of any tasks and updates.
        curve: of the update and the task, from balanced starts.

    Returns:
        The gaps.
    """
    mine = [one for one in results if (one["task"], one["update"]) == (curve.task, curve.update)]
    balanced, moved = (
        {(one["rate"], one["seed"]): one for one in mine if one["spread"] == spread}
        for spread in (BALANCED, BADLY_SCALED)
    )
    pairs = [(balanced[key], moved[key]) for key in balanced if key in moved]
    found = [
        (one["rate"], abs(one["loss"] - other["loss"]) / one["loss"])
        for one, other in pairs
        if not one["diverged"] and not other["diverged"]
    ]
    return Gaps(
        max((gap for rate, gap in found if rate <= curve.best.rate), default=float("nan")),
        max((gap for _, gap in found), default=float("nan")),
        sum(one["diverged"] != other["diverged"] for one, other in pairs),
    )


HEAD = """\
| | balanced: best loss (rate) | good rates | badly scaled: best loss (rate) | good rates \
| at the balanced start's best rate | gap up to the best rate | at any rate | one diverged |
|---|---|---|---|---|---|---|---|---|"""


def table(results: Sequence[dict[str, Any]]) -> str:
    """Markdown: a block for every task, a line for every update; below, starts of other spreads."""
    blocks: list[str] = []
    for task in dict.fromkeys(one["task"] for one in results):
        mine = [curve for curve in curves(results) if curve.task == task]
        target = min(c.best.mean for c in mine if c.spread in (BALANCED, BADLY_SCALED))
        lines = [
            _line([curve for curve in mine if curve.update == update], target, results)
            for update in dict.fromkeys(curve.update for curve in mine)
        ]
        blocks.append("\n".join([f"**{task}**, best of all {target:.3f}\n", HEAD, *lines]))
        blocks += _other_spreads(mine, target)
    return "\n\n".join(blocks)


def _line(mine: Sequence[Curve], target: float, results: Sequence[dict[str, Any]]) -> str:
    by_spread = {curve.spread: curve for curve in mine}
    one, other = by_spread[BALANCED], by_spread[BADLY_SCALED]
    cells = [TITLES[one.update]]
    for curve in (one, other):
        cells += [_best(curve), str(curve.good(target))]
    cells.append(f"{other.at(one.best.rate):.3f}".replace("inf", "diverged"))
    stable, largest, apart = gaps(results, one)
    cells += [f"{stable:.0e}", f"{largest:.0e}", str(apart)]
    return f"| {' | '.join(cells)} |"


def _best(curve: Curve) -> str:
    return f"{curve.best.mean:.3f} ({curve.best.rate:.2g})"


def _other_spreads(mine: Sequence[Curve], target: float) -> list[str]:
    """A sentence for every other spread: best losses and numbers of good rates."""
    spreads = sorted({curve.spread for curve in mine} - {BALANCED, BADLY_SCALED})
    return [
        f"Scales up to {spread:g}: "
        + "; ".join(
            f"{TITLES[curve.update]} {_best(curve)}, {curve.good(target)} good"
            for curve in mine
            if curve.spread == spread
        )
        + "."
        for spread in spreads
    ]
