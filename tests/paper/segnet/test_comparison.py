import math

import pytest

from symoptim.paper.segnet.comparison import MARGIN, ScoreComparison, compare
from symoptim.paper.segnet.summary import SceneSummary
from tests.paper.segnet.conftest import Sample, scored


def compared(summary: SceneSummary, *arguments) -> ScoreComparison:
    found = compare(scored(summary, *arguments))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("un", "sgd", "numbers", "finding"),
    [
        (
            [0.52, 0.54],
            [0.53, 0.54],
            (-0.005, 0.011, -0.074, 0.064, 0.71),
            "undecided: chance is not excluded",
        ),
        (
            [0.53, 0.531, 0.532],
            [0.53, 0.531, 0.533],
            (0.000, 0.001, -0.003, 0.003, 0.77),
            f"level, to within {MARGIN}",
        ),
        ([0.701, 0.702], [0.501, 0.502], (0.200, 0.001, 0.197, 0.203, 1.2e-05), "ahead"),
        ([0.501, 0.502], [0.701, 0.702], (-0.200, 0.001, -0.203, -0.197, 1.2e-05), "behind"),
        ([0.5331, 0.5332, 0.5333], [0.5301, 0.5302, 0.5303], (0.003, 0.000, 0.003, 0.003, 3.3e-06), "ahead"),
    ],
    ids=["too few to tell", "level", "different", "worse", "close but different"],
)
def test_a_difference_is_weighed_against_chance(
    scene_summary: SceneSummary, un: Sample, sgd: Sample, numbers: tuple[float, ...], finding: str
) -> None:
    found = compared(scene_summary, {"un": un, "sgd": sgd})
    assert (found.ours, found.rival, found.finding) == (("UN",), "SGD", finding)
    *sizes, p = (found.difference, found.error, found.low, found.high, found.p)
    assert sizes == pytest.approx(numbers[:-1], abs=6e-4)
    assert p == pytest.approx(numbers[-1], rel=0.05)


def test_runs_that_do_not_vary_cannot_be_tested(scene_summary: SceneSummary) -> None:
    found = compared(scene_summary, {"un": [0.7, 0.7], "sgd": [0.5, 0.5]})
    assert found.finding == "runs do not vary: no test can tell"
    assert math.isnan(found.low)


@pytest.mark.parametrize(("un", "sgd"), [([0.7], [0.5]), ([0.7], [0.49, 0.51]), ([0.69, 0.71], [0.5])])
def test_of_single_runs_nothing_is_claimed(scene_summary: SceneSummary, un: Sample, sgd: Sample) -> None:
    found = compared(scene_summary, {"un": un, "sgd": sgd})
    assert found.finding == "too few runs to tell"
    assert found.difference == pytest.approx(0.2)


def test_un_and_sm_coincide_and_count_as_one(scene_summary: SceneSummary) -> None:
    found = compared(scene_summary, {"un": [0.5, 0.52], "sm": [0.54, 0.56], "sgd": [0.52, 0.55]})
    assert (found.ours, found.repeats, found.rival_repeats) == (("UN", "SM"), 2, 2)
    assert (found.mean, found.error, found.p) == pytest.approx((0.53, 0.018, 0.81), abs=5e-3)


def test_the_rival_is_chosen_by_its_validation_scores(scene_summary: SceneSummary) -> None:
    test = {"un": [0.5, 0.51], "sgd": [0.6, 0.62], "sgd-plain": [0.7, 0.72], "adamw": [0.55, 0.56]}
    validation = {"un": [0.9, 0.9], "sgd": [0.3, 0.3], "sgd-plain": [0.1, 0.2], "adamw": [0.3, 0.4]}
    found = compared(scene_summary, test, validation)
    assert (found.rival, found.difference) == ("AdamW", pytest.approx(-0.05))


def test_other_invariant_updates_are_neither_the_papers_nor_rivals(scene_summary: SceneSummary) -> None:
    test = {"un-momentum": [0.7, 0.72], "sm": [0.5, 0.51], "invariant-adamw": [0.8, 0.82], "sgd": [0.4, 0.42]}
    found = compared(scene_summary, test)
    assert (found.ours, found.rival, found.difference) == (("SM",), "SGD", pytest.approx(0.095))


@pytest.mark.parametrize("updates", [("un", "sm"), ("sgd", "adamw"), ("invariant-adamw", "sgd")])
def test_there_may_be_nothing_to_compare(scene_summary: SceneSummary, updates: tuple[str, str]) -> None:
    one, other = updates
    assert compare(scored(scene_summary, {one: [0.6, 0.64], other: [0.4, 0.5]})) is None
