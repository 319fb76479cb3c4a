"""The tests behind the verdicts: two samples are compared, many comparisons are corrected together.

means        Welch's t-test and interval: the samples may have different variances
spreads      Brown and Forsythe's test: Levene's with medians, sound for samples that are not normal
equality     two one-sided Welch tests: the difference is smaller than a margin
many         Holm's step-down correction: the chance of any false verdict in the family stays below alpha
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

Name = TypeVar("Name")


class Difference(NamedTuple):
    """What is known about ``mean(first) - mean(second)``, or about their standard deviations."""

    value: float
    low: float
    """95 % interval of the value; NaN for spreads, which have none here."""
    high: float
    p: float
    """Chance of a difference this large if there were none; not yet corrected."""
    effect: float
    """The value in units of the pooled standard deviation (Cohen's d), or the ratio of the deviations."""


def _scipy() -> Any:
    import scipy.stats  # pyright: ignore[reportMissingTypeStubs]

    return scipy.stats


def compare_means(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Welch's comparison of two means.

    >>> round(compare_means([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]).p, 4)
    0.2879
    """
    value = statistics.fmean(first) - statistics.fmean(second)
    if statistics.pvariance(first) == 0 == statistics.pvariance(second):
        # Without any variance no test can tell chance from difference.
        return Difference(value, math.nan, math.nan, 1.0, math.nan)
    test = _scipy().ttest_ind(first, second, equal_var=False)
    interval = test.confidence_interval(0.95)
    return Difference(
        value, float(interval.low), float(interval.high), float(test.pvalue), value / _pooled(first, second)
    )


def mean_interval(sample: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean; NaN for fewer than two.

    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(sample) < 2:
        return math.nan, math.nan
    half = _scipy().t.ppf(0.975, len(sample) - 1) * statistics.stdev(sample) / math.sqrt(len(sample))
    mean = statistics.fmean(sample)
    return float(mean - half), float(mean + half)


def compare_spreads(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Brown and Forsythe's comparison of two standard deviations; the effect is their ratio."""
    deviations = statistics.stdev(first), statistics.stdev(second)
    ratio = deviations[0] / deviations[1] if deviations[1] else math.nan
    same = deviations == (0, 0)
    p = 1.0 if same else float(_scipy().levene(first, second, center="median").pvalue)
    return Difference(deviations[0] - deviations[1], math.nan, math.nan, p, ratio)


def compare_with_margin(
    first: Sequence[float], second: Sequence[float], margin: float
) -> tuple[Difference, bool]:
    """Is the difference of two means smaller than ``margin``, or larger?

    Both are tested, smaller by two one-sided tests; the better p counts, doubled for there being two.

    Args:
        first: a sample of at least two.
        second: another one.
        margin: above 0.

    Returns:
        The difference, and whether its p speaks for smaller.
    """
    above_minus = _above([x + margin for x in first], second)  # p of: difference > -margin
    below_plus = 1 - _above([x - margin for x in first], second)  # p of: difference < margin
    closer = max(above_minus, below_plus)
    farther = 1 - closer
    return compare_means(first, second)._replace(p=min(1.0, 2 * min(closer, farther))), closer < farther


def _above(first: Sequence[float], second: Sequence[float]) -> float:
    """One-sided p of ``mean(first) > mean(second)``."""
    found = compare_means(first, second)
    return found.p / 2 if found.value > 0 else 1 - found.p / 2


def _pooled(first: Sequence[float], second: Sequence[float]) -> float:
    degrees = len(first) - 1, len(second) - 1
    variances = statistics.variance(first), statistics.variance(second)
    return math.sqrt((degrees[0] * variances[0] + degrees[1] * variances[1]) / sum(degrees))


def holm(values: Mapping[Name, float]) -> dict[Name, float]:
    """P-values corrected for all of them being looked at (Holm, 1979).

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    corrected: dict[Name, float] = {}
    largest = 0.0
    for rank, (name, p) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(values) - rank) * p))
        corrected[name] = largest
    return corrected
