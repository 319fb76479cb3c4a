"""What the records of the SegNet experiment say, ready to be shown."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from symoptim.paper.records.findings import Example, Matrix, read_confusions, read_examples, read_pictures
from symoptim.paper.records.runs import (
    RecordedExperiment,
    RecordedRun,
    read_experiment,
    read_runs,
    reading,
)
from symoptim.paper.records.selection import candidate, choose
from symoptim.paper.segnet.scores import Scores, scores_of


class UpdateResult(NamedTuple):
    """All repeats of an update at its chosen rate that did not diverge, with their scores on each set."""

    update: str
    title: str
    runs: tuple[RecordedRun, ...]
    train: tuple[Scores, ...]
    validation: tuple[Scores, ...]
    test: tuple[Scores, ...]
    diverged: int
    missing: int

    @property
    def rate(self) -> float | None:
        """The rate that was chosen; None where no run has it."""
        return self.runs[0].configuration["rate"] if self.runs else None

    @property
    def mean_ious(self) -> list[float]:
        """Mean IoU on the test set, one per repeat."""
        return [scores.mean_iou for scores in self.test]

    @property
    def mean(self) -> float:
        """Mean over the repeats of the mean IoU on the test set."""
        return mean_of(self.test, lambda scores: scores.mean_iou)

    @property
    def seconds(self) -> float:
        """Median time of a run: the first one of a process may have compiled, too."""
        return statistics.median(run.seconds or 0.0 for run in self.runs)


class RatePoint(NamedTuple):
    """A run that helped to choose a rate: its rate and its mean IoU; a run that diverged scores 0."""

    update: str
    rate: float
    validation: float
    test: float
    diverged: bool


class SceneSummary(NamedTuple):
    """Everything that is shown."""

    experiment: RecordedExperiment
    results: list[UpdateResult]
    search: list[RatePoint]
    """Short runs over the whole grid."""
    finalists: list[RatePoint]
    """Full runs at the rates that did best in the search."""
    examples: list[Example]
    pictures: dict[str, dict[str, bytes]]
    """By update: what its first repeat made of each example."""

    @property
    def titles(self) -> dict[str, str]:
        """Names of the updates."""
        return self.experiment.configuration["titles"]

    @property
    def trained(self) -> list[UpdateResult]:
        """Updates that have results."""
        return [result for result in self.results if result.test]


def summarize_scenes(records: Path) -> SceneSummary:
    """Read a records file."""
    with reading(records) as connection:
        experiment = read_experiment(connection, records)
        full, search = (read_runs(connection, phase) for phase in ("full", "search"))
        matrices = {part: read_confusions(connection, part) for part in ("train", "validation", "test")}
        results = [_result(experiment, update, full, matrices) for update in _updates(experiment)]
        shown = {result.update: result.runs[0].run for result in results if result.runs}
        pictures = {update: read_pictures(connection, run) for update, run in shown.items()}
        points = [_point(run) for run in search if run.has_ended]
        firsts = [run for run in full if run.has_ended and run.labels["repeat"] == 0]
        finalists = [_point(run) for run in firsts if run.curve]
        return SceneSummary(experiment, results, points, finalists, read_examples(connection), pictures)


def _updates(experiment: RecordedExperiment) -> list[str]:
    return experiment.configuration["protocol"]["updates"]


def _result(
    experiment: RecordedExperiment,
    update: str,
    full: Sequence[RecordedRun],
    matrices: dict[str, dict[str, Matrix]],
) -> UpdateResult:
    """An update at the rate that did best on the validation set in its first full runs."""
    repeats = experiment.configuration["protocol"]["repeats"]
    ended = [run for run in full if run.labels["update"] == update and run.has_ended]
    rate = choose(candidate(run) for run in ended if run.labels["repeat"] == 0)
    chosen = [run for run in ended if run.labels["rate"] == rate]
    sound = [run for run in chosen if not run.diverged]
    no_more = bool(experiment.finished) or len(ended) >= _rates_in_full(experiment)
    lost = repeats if rate is None and no_more else len(chosen) - len(sound)
    train, validation, test = (
        tuple(scores_of(by_run[run.run]) for run in sound) for by_run in matrices.values()
    )
    title = experiment.configuration["titles"][update]
    return UpdateResult(
        update,
        title,
        tuple(sound),
        train,
        validation,
        test,
        diverged=lost,
        missing=repeats - len(sound) - lost,
    )


def _rates_in_full(experiment: RecordedExperiment) -> int:
    """Rates of an update that run in full."""
    protocol = experiment.configuration["protocol"]
    return min(protocol["finalists"], len(protocol["rates"])) or 1


def _point(run: RecordedRun) -> RatePoint:
    last = run.curve[-1]
    scores = (0.0, 0.0) if run.diverged else (1 - last.validation_error, 1 - last.test_error)
    return RatePoint(run.labels["update"], run.labels["rate"], *scores, run.diverged)


def mean_of(scores: Sequence[Scores], which: Callable[[Scores], float]) -> float:
    """Mean over repeats of one of the scores."""
    return statistics.fmean(map(which, scores))


def spreads(points: Sequence[RatePoint]) -> dict[str, float]:
    """Largest minus smallest test score over the grid of rates, by update.

    >>> points = [RatePoint("un", 0.1, 0.5, 0.5, False), RatePoint("un", 1.0, 0.0, 0.0, True)]
    >>> spreads(points)
    {'un': 0.5}
    """
    by_update: dict[str, list[float]] = {}
    for point in points:
        by_update.setdefault(point.update, []).append(point.test)
    return {update: max(scores) - min(scores) for update, scores in by_update.items()}
