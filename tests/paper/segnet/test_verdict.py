from collections.abc import Mapping

import pytest

from symoptim.paper.segnet.summary import SceneSummary
from symoptim.paper.segnet.updates import SCENE_UPDATES
from symoptim.paper.segnet.words import scene_sentences
from tests.paper.segnet.conftest import Sample, scored


def best(
    summary: SceneSummary, test: Mapping[str, Sample], validation: Mapping[str, Sample] | None = None
) -> str:
    """The sentence about the best update, and how the paper's compare."""
    return scene_sentences(scored(summary, test, validation))[1]


@pytest.mark.parametrize(
    ("un", "sgd", "words"),
    [
        (
            [0.52, 0.54],
            [0.53, 0.54],
            "0.535, of SGD; the paper's UN (0.530) is behind SGD (0.535) by 0.005, standard error 0.011; 2 "
            "and 2 repeats do not exclude chance (p = 0.71 by Welch's test, 95 % interval -0.074 to +0.064).",
        ),
        (
            [0.53, 0.531, 0.532],
            [0.53, 0.531, 0.533],
            "0.531, of SGD; the paper's UN (0.531) is level with SGD (0.531), to within 0.01 "
            "(p = 0.77 by Welch's test, 95 % interval -0.003 to +0.003).",
        ),
        (
            [0.701, 0.702],
            [0.501, 0.502],
            "0.702, of UN; the paper's UN (0.702) is ahead of SGD (0.502) by 0.200, standard error 0.001, "
            "every run better than all with SGD: more than chance (p = 1.2e-05 by Welch's test, 95 % "
            "interval +0.197 to +0.203).",
        ),
        (
            [0.5331, 0.5332, 0.5333],
            [0.5301, 0.5302, 0.5303],
            "0.533, of UN; the paper's UN (0.533) is ahead of SGD (0.530) by 0.003, standard error 0.000, "
            "every run better than all with SGD: more than chance (p = 3.3e-06 by Welch's test, 95 % "
            "interval +0.003 to +0.003).",
        ),
        (
            [0.7, 0.7],
            [0.5, 0.5],
            "0.700, of UN; the paper's UN (0.700) is ahead of SGD (0.500) by 0.200; runs do not vary, so no "
            "test can tell.",
        ),
    ],
    ids=["too few to tell", "level", "different", "close but different", "without variation"],
)
def test_a_difference_is_weighed_against_chance(
    scene_summary: SceneSummary, un: Sample, sgd: Sample, words: str
) -> None:
    said = best(scene_summary, {"un": un, "sgd": sgd})
    assert said == f"The highest mean IoU on the test set is {words}"


@pytest.mark.parametrize(("un", "sgd"), [([0.7], [0.5]), ([0.7], [0.49, 0.51]), ([0.69, 0.71], [0.5])])
def test_of_single_runs_nothing_is_claimed(scene_summary: SceneSummary, un: Sample, sgd: Sample) -> None:
    said = best(scene_summary, {"un": un, "sgd": sgd})
    assert said.endswith("UN (0.700) is ahead of SGD (0.500) by 0.200, which so few runs say nothing about.")


def test_un_and_sm_coincide_and_count_as_one(scene_summary: SceneSummary) -> None:
    said = best(scene_summary, {"un": [0.5, 0.52], "sm": [0.54, 0.56], "sgd": [0.52, 0.55]})
    assert said == (
        "The highest mean IoU on the test set is 0.550, of SM; the paper's UN and SM (0.530) are behind SGD "
        "(0.535) by 0.005, standard error 0.018; 2 and 2 repeats do not exclude chance (p = 0.81 by Welch's "
        "test, 95 % interval -0.095 to +0.085)."
    )


def test_the_rival_is_chosen_by_its_validation_scores(scene_summary: SceneSummary) -> None:
    test = {"un": [0.5, 0.51], "sgd": [0.6, 0.62], "sgd-plain": [0.7, 0.72], "adamw": [0.55, 0.56]}
    validation = {"un": [0.9, 0.9], "sgd": [0.3, 0.3], "sgd-plain": [0.1, 0.2], "adamw": [0.3, 0.4]}
    said = best(scene_summary, test, validation)
    assert (
        "is 0.710, of SGD without momentum; the paper's UN (0.505) is behind AdamW (0.555) by 0.050" in said
    )
    assert "no run as good as any with AdamW" in said


def test_other_invariant_updates_are_neither_the_papers_nor_rivals(scene_summary: SceneSummary) -> None:
    test = {"un-momentum": [0.7, 0.72], "sm": [0.5, 0.51], "invariant-adamw": [0.8, 0.82], "sgd": [0.4, 0.42]}
    said = best(scene_summary, test)
    assert "is 0.810, of invariant AdamW; the paper's SM (0.505) is ahead of SGD (0.410) by 0.095" in said


@pytest.mark.parametrize("updates", [("un", "sm"), ("sgd", "adamw"), ("invariant-adamw", "sgd")])
def test_where_there_is_nothing_to_compare_only_the_highest_score_is_said(
    scene_summary: SceneSummary, updates: tuple[str, str]
) -> None:
    one, other = updates
    said = best(scene_summary, {one: [0.6, 0.64], other: [0.4, 0.5]})
    title = SCENE_UPDATES[one].title
    assert said == f"The highest mean IoU on the test set is 0.620, of {title}."


def test_the_score_of_a_single_update_is_not_called_the_highest(scene_summary: SceneSummary) -> None:
    assert best(scene_summary, {"un": [0.6, 0.64]}) == "The mean IoU on the test set is 0.620, of UN."
