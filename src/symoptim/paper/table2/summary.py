"""What the records of Table 2 say: cells, trajectories, verdicts, chosen rates, when runs stopped."""

import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from symoptim.paper.records.database import Json
from symoptim.paper.records.runs import (
    RecordedExperiment,
    RecordedRun,
    read_experiment,
    read_runs,
    reading,
)
from symoptim.paper.table2 import cells as table2
from symoptim.paper.table2 import trajectories
from symoptim.paper.table2.cells import ARCHITECTURES
from symoptim.paper.table2.claims import CLAIMS
from symoptim.paper.table2.judge import Judgment, judge


class RateRow(NamedTuple):
    """How often the selection chose each rate."""

    network: str
    update: str
    counts: tuple[int, ...]


class EndingRow(NamedTuple):
    """When and why the bold driver's runs stopped."""

    network: str
    update: str
    first: int
    median: float
    last: int
    reasons: str


@dataclass(frozen=True)
class Summary:
    """An experiment with its full runs, and what follows from them."""

    experiment: RecordedExperiment
    runs: list[RecordedRun]

    @property
    def protocol(self) -> Json:
        """The protocol, as plain data."""
        return self.experiment.configuration["protocol"]

    @property
    def titles(self) -> dict[str, str]:
        """Names of the updates."""
        return self.experiment.configuration["titles"]

    @cached_property
    def cells(self) -> list[table2.Cell]:
        """Table 2."""
        return table2.cells(self.experiment, self.runs)

    @cached_property
    def panels(self) -> list[trajectories.Panel]:
        """The trajectories."""
        return trajectories.panels(self.experiment, self.runs)

    @cached_property
    def judgments(self) -> list[Judgment]:
        """Verdicts on the paper's claims; they take a second."""
        return judge(CLAIMS, {cell.key: cell.errors for cell in self.cells}, self.runs)

    @property
    def rates(self) -> list[float]:
        """The candidate rates, the largest first."""
        return sorted(self.protocol["rates"], reverse=True)

    def chosen_rates(self) -> list[RateRow]:
        """How many repeats chose which rate; one schedule stands for both."""
        rows: list[RateRow] = []
        for network, update, runs in self._groups(self.protocol["schedules"][0]):
            counts = Counter(run.configuration.get("rate") for run in runs)
            rows.append(RateRow(network, update, tuple(counts[rate] for rate in self.rates)))
        return rows

    def endings(self) -> list[EndingRow]:
        """Stopping epochs of the schedule that may stop early."""
        rows: list[EndingRow] = []
        for network, update, runs in self._groups("bold"):
            ended = [run for run in runs if run.has_ended]
            lengths = [len(run.curve) for run in ended if run.curve]
            if lengths:
                reasons = Counter(run.reason for run in ended).most_common()
                why = "; ".join(f"{count} {reason}" for reason, count in reasons)
                middle = statistics.median(lengths)
                rows.append(EndingRow(network, update, min(lengths), middle, max(lengths), why))
        return rows

    def _groups(self, schedule: str) -> Iterator[tuple[str, str, list[RecordedRun]]]:
        """Runs of a schedule, network by network and update by update."""
        names = ("architecture", "depth", "update", "schedule")
        for architecture in self.protocol["architectures"]:
            for depth in self.protocol["depths"]:
                for update in self.protocol["updates"]:
                    wanted = (architecture, depth, update, schedule)
                    runs = [run for run in self.runs if tuple(run.labels[n] for n in names) == wanted]
                    yield f"{depth}-layer {ARCHITECTURES[architecture]}", self.titles[update], runs


def summarize(records: Path) -> Summary:
    """Read a records file."""
    with reading(records) as connection:
        return Summary(read_experiment(connection, records), read_runs(connection, "full"))
