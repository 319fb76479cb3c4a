"""Scores as Markdown and CSV: the updates beside what others have published, class by class, rate by rate."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from symoptim.paper.data.classes import CLASSES
from symoptim.paper.records.runs import Epoch
from symoptim.paper.segnet.summary import SceneSummary, UpdateResult, mean_of, spreads
from symoptim.support.files import csv_text

CLASS_NAMES = tuple(kind.name for kind in CLASSES)


class Line(NamedTuple):
    """A line of the table of scores, ready to be printed."""

    system: str
    training: str
    texts: tuple[str, ...]
    remark: str
    is_ours: bool


def score_lines(summary: SceneSummary) -> list[Line]:
    """Our updates, best first, then the published systems where they compare: CamVid in full size."""
    config = summary.experiment.configuration
    images = f"{config['images'][0]} images"
    best_first = sorted(summary.trained, key=lambda result: -result.mean)
    ours = [Line(r.title, images, _texts(r), _remark(r), is_ours=True) for r in best_first]
    if config["data"] != "camvid" or config["profile"] != "paper":
        return ours
    theirs = [((row.global_accuracy, row.class_accuracy, row.mean_iou), row) for row in PUBLISHED]
    return ours + [
        Line(row.system, row.training, tuple(map(_short, scores)), row.source, is_ours=False)
        for scores, row in theirs
    ]


def _texts(result: UpdateResult) -> tuple[str, ...]:
    """Mean and deviation over the repeats of global accuracy, class accuracy, mean IoU."""
    return tuple(map(_pair, zip(*(scores[:3] for scores in result.test), strict=True)))


def _pair(values: Sequence[float]) -> str:
    """Mean and deviation; a single run has no deviation."""
    deviation = f" ± {_short(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{_short(statistics.fmean(values))}{deviation}"


def _short(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}".removeprefix("0")


def _remark(result: UpdateResult) -> str:
    words = [f"n = {len(result.test)}", f"rate {result.rate:g}", f"{result.seconds:.0f} s a run"]
    words += [f"{result.diverged} diverged"] if result.diverged else []
    words += [f"{result.missing} not trained yet"] if result.missing else []
    return ", ".join(words)


def scores_markdown(summary: SceneSummary) -> str:
    """The table of scores."""
    text = ["| | trained on | global | class | mean IoU | |", "|---|---|---|---|---|---|"]
    for line in score_lines(summary):
        name = f"**{line.system}**" if line.is_ours else line.system
        text.append(f"| {name} | {line.training} | {' | '.join(line.texts)} | {line.remark} |")
    return "\n".join(text) + "\n"


def scores_csv(summary: SceneSummary) -> str:
    """One line per run and set, with every score."""
    header = ["update", "repeat", "rate", "seconds", "set", "global", "class", "mean_iou"]
    header += [f"iou_{name}" for name in CLASS_NAMES]
    return csv_text(
        header,
        (
            [result.update, run.labels["repeat"], result.rate, run.seconds, part, *scores[:3], *scores.ious]
            for result in summary.results
            for part in ("train", "validation", "test")
            for run, scores in zip(result.runs, getattr(result, part), strict=True)
        ),
    )


def curves_csv(summary: SceneSummary) -> str:
    """One line per epoch of every repeat; the score is empty where it was not measured."""
    header = ["update", "repeat", "rate", "epoch", "loss", "validation_mean_iou"]
    return csv_text(
        header,
        (
            [result.update, run.labels["repeat"], result.rate, epoch.number, epoch.loss, _score(epoch)]
            for result in summary.trained
            for run in result.runs
            for epoch in run.curve
        ),
    )


def _score(epoch: Epoch) -> float | str:
    return "" if math.isnan(epoch.validation_error) else 1 - epoch.validation_error


def class_rows(summary: SceneSummary) -> list[tuple[str, list[str]]]:
    """Every class with its IoU on the test set, mean over repeats, update by update."""
    return [
        (name, [_short(mean_of(r.test, lambda scores, k=k: scores.ious[k])) for r in summary.trained])
        for k, name in enumerate(CLASS_NAMES)
    ]


def rate_rows(summary: SceneSummary) -> list[tuple[str, list[str], str]]:
    """Every update with its test score at each rate of the search, and its spread."""
    rates = searched_rates(summary)
    by_place = {(point.update, point.rate): point for point in summary.search}
    rows: list[tuple[str, list[str], str]] = []
    for update, spread in spreads(summary.search).items():
        points = [by_place.get((update, rate)) for rate in rates]
        texts = ["" if p is None else "diverged" if p.diverged else _short(p.test) for p in points]
        rows.append((summary.titles[update], texts, _short(spread)))
    return rows


def searched_rates(summary: SceneSummary) -> list[float]:
    """Rates of the search, smallest first."""
    return sorted({point.rate for point in summary.search})


def rates_markdown(summary: SceneSummary) -> str:
    """Sensitivity to the rate as a table."""
    rates = [f"{rate:g}" for rate in searched_rates(summary)]
    return _markdown([["rate", *rates, "spread"], *([t, *texts, s] for t, texts, s in rate_rows(summary))])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def rates_csv(summary: SceneSummary) -> str:
    """One line per run that helped to choose a rate."""
    header = ["round", "update", "rate", "validation_mean_iou", "test_mean_iou", "diverged"]
    rounds = {"search": summary.search, "final": summary.finalists}
    rows = ([name, *point] for name, points in rounds.items() for point in points)
    return csv_text(header, ([*row[:-1], int(row[-1])] for row in rows))


def finalist_rows(summary: SceneSummary) -> list[tuple[str, ...]]:
    """Every full run that helped to choose a rate: update, rate, scores on validation and test set."""
    return [
        (summary.titles[p.update], f"{p.rate:g}", *(["diverged", ""] if p.diverged else map(_short, p[2:4])))
        for p in summary.finalists
    ]


class Published(NamedTuple):
    """A system: what it is, its training set, and global accuracy, class accuracy, mean IoU if given."""

    system: str
    training: str
    global_accuracy: float | None
    class_accuracy: float
    mean_iou: float | None
    source: str


PUBLISHED: tuple[Published, ...] = (
    Published("SegNet-Basic, L-BFGS", "367 images", 0.843, 0.629, None, "arXiv:1505.07293"),
    Published("SegNet-Basic", "367 images", 0.827, 0.620, 0.477, "arXiv:1511.00561, Table 1"),
    Published("SegNet-Basic, no weights", "367 images", 0.840, 0.546, 0.463, "arXiv:1511.00561, Table 1"),
    Published("SegNet-Basic of ChainerCV", "367 images", 0.827, 0.671, 0.472, "chainer/chainercv"),
    Published("ENet", "367 images", None, 0.683, 0.513, "arXiv:1606.02147"),
    Published("ESPNet", "367 images", None, 0.683, 0.556, "arXiv:1803.06815"),
    Published(
        "SegNet",
        "367 images (?), ImageNet weights",
        0.886,
        0.659,
        0.502,
        "an earlier version of arXiv:1511.00561, as others quote it",
    ),
    Published("SegNet", "3433 images, ImageNet weights", 0.904, 0.712, 0.601, "arXiv:1511.00561, Table 3"),
)
"""11 classes, 360 x 480 pixels."""
