"""The paper's trajectories from the records: mean test error over the epochs, with its deviation.

Two columns, the deepest Arch1 with exponential decay and the deepest Arch2 with the bold driver, and a row
for every update. A run that has stopped no longer counts, and the number still running is shown. Runs that
diverged are left out.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from symoptim.paper.records.runs import RecordedExperiment, RecordedRun
from symoptim.support.files import csv_text

PANELS = (("arch1", "exponential"), ("arch2", "bold"))


class Point(NamedTuple):
    """An epoch of a panel: mean and deviation of the test error of the runs still running."""

    epoch: int
    mean: float
    deviation: float
    running: int


class Panel(NamedTuple):
    """One panel of the figure."""

    architecture: str
    depth: int
    schedule: str
    update: str
    points: tuple[Point, ...]


def panels(experiment: RecordedExperiment, runs: Iterable[RecordedRun]) -> list[Panel]:
    """All panels, column by column."""
    config = experiment.configuration["protocol"]
    depth = max(config["depths"])
    sound = [run for run in runs if run.labels["depth"] == depth and not run.diverged]
    return [
        Panel(architecture, depth, schedule, update, _points(mine))
        for architecture, schedule in PANELS
        for update in config["updates"]
        for mine in [
            [
                run
                for run in sound
                if (run.labels["architecture"], run.labels["schedule"], run.labels["update"])
                == (architecture, schedule, update)
            ]
        ]
    ]


def _points(runs: Sequence[RecordedRun]) -> tuple[Point, ...]:
    longest = max((len(run.curve) for run in runs), default=0)
    points: list[Point] = []
    for index in range(longest):
        errors = [run.curve[index].test_error for run in runs if index < len(run.curve)]
        deviation = statistics.stdev(errors) if len(errors) > 1 else math.nan
        points.append(Point(index + 1, statistics.fmean(errors), deviation, len(errors)))
    return tuple(points)


def as_csv(panels: Iterable[Panel]) -> str:
    """One line per panel and epoch."""
    header = [*Panel._fields[:-1], *Point._fields]
    return csv_text(header, ([*panel[:-1], *point] for panel in panels for point in panel.points))
