"""The paper's updates against the best of the others, weighed against chance."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from symoptim.paper.report.statistics import Difference, compare_means, compare_with_margin
from symoptim.paper.segnet.summary import SceneSummary, UpdateResult, mean_of
from symoptim.paper.updates import info

MARGIN = 0.01  # of mean IoU: what repeats of one update differ by
SIGNIFICANT = 0.05


class ScoreComparison(NamedTuple):
    """Mean IoU of the paper's updates together, minus that of the best rival; NaN where no test can tell."""

    ours: tuple[str, ...]
    mean: float
    repeats: int
    rival: str
    rival_mean: float
    rival_repeats: int
    error: float
    """Standard error of the difference."""
    low: float
    """95 % interval of the difference."""
    high: float
    p: float
    """Of Welch's test."""
    finding: str

    @property
    def difference(self) -> float:
        """How far the paper's updates are ahead."""
        return self.mean - self.rival_mean


def compare(summary: SceneSummary) -> ScoreComparison | None:
    """Compare UN and SM, which take the same path, with the best rival; None without either."""
    ours = [result for result in summary.trained if info(result.update).role == "paper"]
    rivals = [result for result in summary.trained if info(result.update).role == "rival"]
    if not ours or not rivals:
        return None
    # Chosen by validation: the best of several test scores would be too good.
    rival = max(rivals, key=lambda result: mean_of(result.validation, lambda scores: scores.mean_iou))
    sample, theirs = observations(ours), rival.mean_ious
    titles = tuple(result.title for result in ours)
    sides = (titles, statistics.fmean(sample), len(sample), rival.title, rival.mean, len(theirs))
    if min(len(sample), len(theirs)) < 2:
        return ScoreComparison(*sides, math.nan, math.nan, math.nan, math.nan, "too few runs to tell")
    error = math.sqrt(statistics.variance(sample) / len(sample) + statistics.variance(theirs) / len(theirs))
    found = compare_means(sample, theirs)
    finding = _finding(found, sample, theirs)
    return ScoreComparison(*sides, error, found.low, found.high, found.p, finding)


def _finding(found: Difference, sample: Sequence[float], theirs: Sequence[float]) -> str:
    close, is_close = compare_with_margin(sample, theirs, MARGIN)
    if math.isnan(found.low):
        return "runs do not vary: no test can tell"
    if found.p < SIGNIFICANT:
        return "ahead" if found.value > 0 else "behind"
    if is_close and close.p < SIGNIFICANT:
        return f"level, to within {MARGIN}"
    return "undecided: chance is not excluded"


def observations(results: Sequence[UpdateResult]) -> list[float]:
    """Scores of the paper's updates, repeat by repeat.

    In one repeat they start from the same weights and see the same images, so that both are one observation.
    """
    by_repeat: dict[int, list[float]] = {}
    for result in results:
        for run, score in zip(result.runs, result.mean_ious, strict=True):
            by_repeat.setdefault(run.labels["repeat"], []).append(score)
    return [statistics.fmean(scores) for scores in by_repeat.values()]
