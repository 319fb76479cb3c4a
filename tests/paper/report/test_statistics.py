"""The tests behind the verdicts, against published numbers and against what they are defined to do."""

import math
import random

import pytest

from symoptim.paper.report.statistics import (
    compare_means,
    compare_spreads,
    compare_with_margin,
    holm,
    mean_interval,
)

FIRST = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8]
SECOND = [21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8]
SECOND += [20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8]


def test_welchs_statistic_is_the_textbook_formula() -> None:
    found = compare_means(FIRST, SECOND)
    means = [sum(sample) / len(sample) for sample in (FIRST, SECOND)]
    errors = [
        sum((x - m) ** 2 for x in sample) / (len(sample) - 1) / len(sample)
        for sample, m in zip((FIRST, SECOND), means, strict=True)
    ]
    assert found.value == pytest.approx(means[0] - means[1])
    assert found.low < found.value < found.high
    # The interval is symmetric, and its half width is t times the standard error.
    half = (found.high - found.low) / 2
    degrees = sum(errors) ** 2 / (errors[0] ** 2 / 9 + errors[1] ** 2 / 19)
    assert half / math.sqrt(sum(errors)) == pytest.approx(_quantile(degrees), rel=1e-3)


def _quantile(degrees: float) -> float:
    """97.5 % quantile of Student's distribution, by Cornish and Fisher's expansion."""
    z = 1.959963985
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def test_a_difference_is_found_and_has_its_sign() -> None:
    low, high = [0.01, 0.011, 0.012, 0.011], [0.02, 0.021, 0.022, 0.021]
    found = compare_means(low, high)
    assert found.value == pytest.approx(-0.01)
    assert found.p < 1e-4
    assert found.effect < -5
    assert compare_means(high, low).p == pytest.approx(found.p)


def test_p_values_of_equal_samples_are_uniform() -> None:
    dice = random.Random(0)
    below = 0
    for _ in range(400):
        one, other = ([dice.gauss(0, 1) for _ in range(10)] for _ in range(2))
        below += compare_means(one, other).p < 0.25
    assert 75 < below < 125  # 100 expected, 8.7 standard deviation


def test_samples_without_variance_decide_nothing() -> None:
    for second in ([1.0, 1.0], [2.0, 2.0]):
        assert compare_means([1.0, 1.0], second).p == 1.0
        assert compare_spreads([1.0, 1.0], second).p == 1.0


def test_the_effect_is_in_units_of_the_pooled_deviation() -> None:
    # Variances 1 and 3 with 2 and 3 degrees of freedom.
    found = compare_means([1.0, 2.0, 3.0], [10.0, 10.0, 13.0, 13.0])
    pooled = math.sqrt((2 * 1.0 + 3 * 3.0) / 5)
    assert found.effect == pytest.approx((2.0 - 11.5) / pooled)


def test_spreads_are_compared_by_the_distances_from_the_medians() -> None:
    """Brown and Forsythe's test of two groups is Student's, on the distances from the medians."""
    stats = pytest.importorskip("scipy.stats")
    one, other = [1.0, 2.0, 4.0, 8.0, 9.0], [3.0, 3.5, 5.0, 3.0, 4.5, 9.0]
    distances = [[abs(x - sorted(s)[len(s) // 2]) for x in s] for s in (one,)]
    middle = (sorted(other)[2] + sorted(other)[3]) / 2
    distances.append([abs(x - middle) for x in other])
    assert compare_spreads(one, other).p == pytest.approx(stats.ttest_ind(*distances).pvalue)


def test_spreads_are_told_apart_whatever_the_means() -> None:
    dice = random.Random(1)
    narrow, wide = [dice.gauss(5, 1) for _ in range(30)], [dice.gauss(0, 5) for _ in range(30)]
    found = compare_spreads(narrow, wide)
    assert found.p < 1e-3
    assert found.value < 0
    assert found.effect == pytest.approx(0.2, rel=0.5)


def test_means_are_closer_than_the_margin_or_farther_or_it_is_open() -> None:
    dice = random.Random(2)
    near, same, far = ([dice.gauss(mean, 0.001) for _ in range(20)] for mean in (0.02, 0.0205, 0.025))
    for second, margin, closer in ((same, 0.002, True), (far, 0.002, False), (far, 0.010, True)):
        difference, favors = compare_with_margin(near, second, margin)
        assert difference.p < 0.01
        assert favors is closer
        assert difference.value == compare_means(near, second).value
    assert compare_with_margin(near, far, 0.005)[0].p > 0.1


def test_closeness_errs_at_the_margin_as_often_as_it_may() -> None:
    dice = random.Random(3)
    wrong = 0
    for _ in range(400):
        one, other = ([dice.gauss(mean, 1) for _ in range(10)] for mean in (0, 1))
        wrong += compare_with_margin(one, other, 1.0)[0].p < 0.10
    assert 20 < wrong < 60  # 40 expected, 6 standard deviation


def test_holm_steps_down_and_never_lets_a_later_p_be_smaller() -> None:
    corrected = holm({"a": 0.001, "b": 0.02, "c": 0.021, "d": 0.9})
    assert corrected == pytest.approx({"a": 0.004, "b": 0.06, "c": 0.06, "d": 0.9})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_the_interval_of_a_mean_needs_two() -> None:
    assert all(math.isnan(end) for end in mean_interval([1.0]))
    low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert (low + high) / 2 == pytest.approx(2.5)
    assert high - 2.5 == pytest.approx(3.1824 * math.sqrt(5 / 3) / 2, rel=1e-4)  # t of 3 degrees: 3.1824
