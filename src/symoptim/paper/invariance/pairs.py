"""Loss curves from two scalings of one network: from the records, and as a CSV file."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from symoptim.paper.records.runs import RecordedRun
from symoptim.support.files import csv_text

PHASE = "invariance"
STARTS = ("balanced", "rescaled")
COLUMNS = ["architecture", "update", "epoch", "balanced", "rescaled", "relative_gap"]


class Pair(NamedTuple):
    """Mean training loss of every epoch, from the balanced weights and from the rescaled ones."""

    architecture: str
    update: str
    balanced: tuple[float, ...]
    rescaled: tuple[float, ...]

    @property
    def gaps(self) -> tuple[float, ...]:
        """Relative difference of the two curves at every epoch.

        >>> Pair("arch1", "sm", (2.0, 1.0), (2.0, 1.5)).gaps
        (0.0, 0.5)
        """
        return tuple(abs(a - b) / abs(a) for a, b in zip(self.balanced, self.rescaled, strict=True))


def pairs_of(runs: Sequence[RecordedRun]) -> list[Pair]:
    """Recorded curves by architecture and update, as far as both runs of a pair have come."""
    losses: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in runs:
        key = (run.labels["architecture"], run.labels["update"])
        losses.setdefault(key, {})[run.labels["start"]] = [epoch.loss for epoch in run.curve]
    both = {key: zip(*(one.get(start, []) for start in STARTS), strict=False) for key, one in losses.items()}
    return [pair for pair in _pairs({key: list(points) for key, points in both.items()}) if pair.balanced]


def _pairs(curves: Mapping[tuple[str, str], Sequence[tuple[float, float]]]) -> list[Pair]:
    return [
        Pair(architecture, update, tuple(a for a, _ in points), tuple(b for _, b in points))
        for (architecture, update), points in curves.items()
    ]


def to_csv(pairs: Sequence[Pair]) -> str:
    """One line per pair and epoch, with every digit."""
    return csv_text(
        COLUMNS,
        [
            (pair.architecture, pair.update, epoch, *numbers)
            for pair in pairs
            for epoch, numbers in enumerate(
                zip(pair.balanced, pair.rescaled, pair.gaps, strict=True), start=1
            )
        ],
    )


def from_csv(text: str) -> list[Pair]:
    """What :func:`to_csv` wrote.

    >>> pairs = [Pair("arch1", "sm", (2.0, 1.0), (2.0, 1.5))]
    >>> from_csv(to_csv(pairs)) == pairs
    True
    """
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        key = (row["architecture"], row["update"])
        curves.setdefault(key, []).append((float(row["balanced"]), float(row["rescaled"])))
    return _pairs(curves)
