"""What the page shows, worked out from the records: sentences, tables, captions. No HTML is here."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from symoptim.records.pairs import Pair
from symoptim.records.reading import RecordedRun
from symoptim.report.judge import Judgment
from symoptim.report.summary import Summary
from symoptim.report.table2 import ARCHITECTURES, SCHEDULES, Cell
from symoptim.report.trajectories import PANELS, Panel


def sentences(summary: Summary, judgments: Sequence[Judgment]) -> list[str]:
    """The page in three sentences."""
    asked = summary.experiment.configuration
    ended = sum(run.has_ended for run in summary.runs)
    device = summary.experiment.device
    count = Counter(judgment.verdict for judgment in judgments)
    return [
        f"{ended} networks were trained to their end on {asked['data']} by the paper's protocol, "
        f"{asked['protocol']['repeats']} repeats of {len(summary.cells)} cells, on {device}, in "
        f"{duration(summary.experiment.seconds)}.",
        _comparison(summary),
        f"Of the paper's {len(judgments)} claims {count['held']} held, {count['not held']} did not, and "
        f"{count['undecided']} stay undecided.",
    ]


def _comparison(summary: Summary) -> str:
    asked = summary.experiment.configuration
    compared = [cell for cell in summary.cells if cell.paper and cell.errors]
    if not compared:
        return f"The paper has no numbers for {asked['data']}, so nothing here compares with its table."
    if asked["profile"] != "paper":
        return (
            "This is a smaller experiment than the paper's, with fewer images and epochs: its errors are "
            "higher, and only the profile paper compares."
        )
    within = sum(c.mean <= c.paper.mean + c.paper.deviation for c in compared if c.paper)
    return f"{within} of {len(compared)} means are at or under the paper's mean plus its standard deviation."


DATA_WORDS = {"digits": "scikit-learn's 1,797 digits of 8x8 pixels", "fashion-mnist": "Fashion-MNIST"}


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(89.6), duration(5400.0)
    ('90 s', '1 h 30 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def missing(summary: Summary) -> list[str]:
    """What a reader has to know is not there."""
    remarks: list[str] = []
    lacking = sum(cell.missing for cell in summary.cells)
    if lacking:
        wanted = lacking + sum(len(cell.errors) + cell.diverged for cell in summary.cells)
        remarks.append(f"{lacking} of {wanted} full runs have not ended: run the same command to go on.")
    diverged = sum(cell.diverged for cell in summary.cells)
    if diverged:
        remarks.append(f"{diverged} full run(s) diverged; they are counted, and left out of all means.")
    data = summary.experiment.configuration["data"]
    if data != "mnist":
        remarks.append(f"The images are {DATA_WORDS.get(data, data)}, not the paper's MNIST.")
    if summary.experiment.configuration["protocol"]["repeats"] == 1:
        remarks.append("With one repeat there are no deviations, and no claim can be judged.")
    return remarks


def best_of_rows(cells: Sequence[Cell]) -> set[Cell]:
    """The cell with the lowest mean of every depth and schedule."""
    rows: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        if cell.errors:
            rows.setdefault((cell.key.depth, cell.key.schedule), []).append(cell)
    return {min(row, key=lambda cell: cell.mean) for row in rows.values()}


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


def trajectories_caption(panels: Sequence[Panel], cells: Sequence[Cell], titles: dict[str, str]) -> str:
    """What the trajectories show, in numbers."""
    ends = {cell.key: cell.mean for cell in cells if cell.errors}
    depth = max((panel.depth for panel in panels), default=0)
    words: list[str] = []
    lower = 0
    for update in dict.fromkeys(panel.update for panel in panels):
        pair = [ends.get(key) for key in ends if key.depth == depth and key.update == update]
        first, second = (
            next((m for k, m in ends.items() if k == (depth, schedule, architecture, update)), math.nan)
            for architecture, schedule in PANELS
        )
        if pair and not math.isnan(first + second):
            lower += second < first
            words.append(f"{titles[update]} {first:.4f} and {second:.4f}")
    networks = " and ".join(f"{depth}-layer {ARCHITECTURES[a]} with {SCHEDULES[s]}" for a, s in PANELS)
    if not words:
        return f"Test error of {networks}: there are not enough runs to compare them."
    return (
        f"Arch2 with the bold driver ends lower for {lower} of {len(words)} updates. Mean test error of "
        f"{networks}: {', '.join(words)}. Dotted: mean over the runs that got that far; band: one standard "
        "deviation; gray: how many runs that is."
    )


INVARIANCE_WORDS = """One network, one function, two scalings
of its weights; same data, same batches.
Training loss per epoch; the numbers are the
largest relative difference of the curves."""


def invariance_caption(pairs: Sequence[Pair]) -> str:
    """What the invariance picture shows, in numbers."""
    split = [max(pair.gaps) for pair in pairs if pair.update == "b-sgd"]
    others = [max(pair.gaps) for pair in pairs if pair.update != "b-sgd"]
    return (
        f"From two scalings of one network plain SGD's loss curves part by up to "
        f"{max(split, default=0):.0%}, those of SM and UN agree to {max(others, default=0):.0e}."
    )
