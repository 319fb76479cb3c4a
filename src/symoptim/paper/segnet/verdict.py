"""The paper's updates against the best of the others, weighed against chance."""

import math
import statistics
from collections.abc import Sequence

from symoptim.paper.report.statistics import compare_means, compare_with_margin
from symoptim.paper.segnet.summary import SceneSummary, UpdateResult, mean_of

INVARIANT = ("un", "un-momentum", "sm", "invariant-adamw")
COINCIDE = ("un", "sm")
"""Where every filter they move is normalized behind it, both take the same path."""
MARGIN = 0.01  # of mean IoU: what repeats of one update differ by
SIGNIFICANT = 0.05


def verdict(summary: SceneSummary) -> str | None:
    """A sentence, without its stop, on how UN and SM compare with the best rival.

    Args:
        summary: what the records say.

    Returns:
        The sentence; None where there is nothing to compare.
    """
    ours = [result for result in summary.trained if result.update in COINCIDE]
    rivals = [result for result in summary.trained if result.update not in INVARIANT]
    if not ours or not rivals:
        return None
    # Chosen by validation: the best of several test scores would be too good.
    rival = max(rivals, key=lambda result: mean_of(result.validation, lambda scores: scores.mean_iou))
    return _comparison(ours, rival)


def _comparison(ours: Sequence[UpdateResult], rival: UpdateResult) -> str:
    sample, theirs = _observations(ours), rival.mean_ious
    mean = statistics.fmean(sample)
    subject = f"the paper's {listed([r.title for r in ours])} ({mean:.3f}) {'are' if len(ours) > 1 else 'is'}"
    other = f"{spoken(rival.title)} ({rival.mean:.3f})"
    gap = (
        f"{subject} {'ahead of' if mean >= rival.mean else 'behind'} {other} by {abs(mean - rival.mean):.3f}"
    )
    if min(len(sample), len(theirs)) < 2:
        return f"{gap}, which so few runs say nothing about"
    found = compare_means(sample, theirs)
    if math.isnan(found.low):
        return f"{gap}; runs do not vary, so no test can tell"
    error = math.sqrt(statistics.variance(sample) / len(sample) + statistics.variance(theirs) / len(theirs))
    gap += f", standard error {error:.3f}{_apart(ours, rival)}"
    numbers = f"(p = {found.p:.2g} by Welch's test, 95 % interval {found.low:+.3f} to {found.high:+.3f})"
    if found.p < SIGNIFICANT:
        return f"{gap}: more than chance {numbers}"
    close, is_close = compare_with_margin(sample, theirs, MARGIN)
    if is_close and close.p < SIGNIFICANT:
        return f"{subject} level with {other}, to within {MARGIN} {numbers}"
    return f"{gap}; {len(sample)} and {len(theirs)} repeats do not exclude chance {numbers}"


def _observations(ours: Sequence[UpdateResult]) -> list[float]:
    """Scores of the paper's updates, repeat by repeat.

    In one repeat they start from the same weights and see the same images, so that both are one observation.
    """
    by_repeat: dict[int, list[float]] = {}
    for result in ours:
        for run, score in zip(result.runs, result.mean_ious, strict=True):
            by_repeat.setdefault(run.labels["repeat"], []).append(score)
    return [statistics.fmean(scores) for scores in by_repeat.values()]


def _apart(ours: Sequence[UpdateResult], rival: UpdateResult) -> str:
    """Says so if no run of one side lies among those of the other."""
    scores = [score for result in ours for score in result.mean_ious]
    if max(scores) < min(rival.mean_ious):
        return f", no run as good as any with {spoken(rival.title)}"
    if min(scores) > max(rival.mean_ious):
        return f", every run better than all with {spoken(rival.title)}"
    return ""


def spoken(title: str) -> str:
    """Title of an update within a sentence, where a comma would part it.

    >>> spoken("SGD, no momentum"), spoken("UN, momentum")
    ('SGD without momentum', 'UN with momentum')
    """
    return title.replace(", no ", " without ").replace(", ", " with ")


def listed(titles: Sequence[str]) -> str:
    """Titles of updates as one says them.

    >>> listed(["UN", "SM", "SGD, no momentum"])
    'UN, SM and SGD without momentum'
    """
    *most, last = map(spoken, titles)
    return f"{', '.join(most)} and {last}" if most else last
