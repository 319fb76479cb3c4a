"""How often things happened: rates that were chosen, epochs at which runs stopped, and why."""

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from symoptim.paper.records.runs import RecordedRun
from symoptim.paper.table2.cells import ARCHITECTURES
from symoptim.paper.table2.summary import Summary


class RateRow(NamedTuple):
    """How often the selection chose each rate."""

    network: str
    update: str
    counts: tuple[int, ...]


def chosen_rates(summary: Summary) -> tuple[list[float], list[RateRow]]:
    """The candidate rates, and how many repeats chose which; one schedule stands for both."""
    asked = summary.experiment.configuration["protocol"]
    rates = sorted(asked["rates"], reverse=True)
    rows: list[RateRow] = []
    for network, update, runs in _groups(summary, asked["schedules"][0]):
        counts = Counter(run.configuration.get("rate") for run in runs)
        rows.append(RateRow(network, update, tuple(counts[rate] for rate in rates)))
    return rates, rows


class EndingRow(NamedTuple):
    """When and why the bold driver's runs stopped."""

    network: str
    update: str
    first: int
    median: float
    last: int
    reasons: str


def endings(summary: Summary) -> list[EndingRow]:
    """Stopping epochs of the schedule that may stop early."""
    rows: list[EndingRow] = []
    for network, update, runs in _groups(summary, "bold"):
        lengths = [len(run.curve) for run in runs if run.has_ended and run.curve]
        if lengths:
            reasons = Counter(run.reason for run in runs if run.has_ended)
            words = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
            rows.append(
                EndingRow(network, update, min(lengths), statistics.median(lengths), max(lengths), words)
            )
    return rows


def _groups(summary: Summary, schedule: str) -> Iterator[tuple[str, str, list[RecordedRun]]]:
    """Runs of a schedule, network by network and update by update."""
    configuration = summary.experiment.configuration
    asked = configuration["protocol"]
    for architecture in asked["architectures"]:
        for depth in asked["depths"]:
            for update in asked["updates"]:
                wanted = (architecture, depth, update, schedule)
                names = ("architecture", "depth", "update", "schedule")
                runs = [run for run in summary.runs if tuple(run.labels[n] for n in names) == wanted]
                yield f"{depth}-layer {ARCHITECTURES[architecture]}", configuration["titles"][update], runs
