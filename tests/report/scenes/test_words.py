from collections.abc import Mapping, Sequence

import pytest

from symoptim.records.scores import Scores
from symoptim.report.scenes.summary import RatePoint, SceneSummary
from symoptim.report.scenes.words import pictures_caption, scene_protocol, scene_remarks, scene_sentences
from symoptim.segmentation.updates import SCENE_UPDATES

Sample = Sequence[float]


def scores(mean_ious: Sample) -> tuple[Scores, ...]:
    return tuple(Scores(0.9, 0.7, score, (), ()) for score in mean_ious)


def scored(
    summary: SceneSummary, test: Mapping[str, Sample], validation: Mapping[str, Sample] | None = None
) -> SceneSummary:
    """Runs of these updates with these mean IoUs; on the validation set the same, unless it is said."""
    first = summary.results[0].runs[0]
    results = [
        summary.results[0]._replace(
            update=update,
            title=SCENE_UPDATES[update].title,
            runs=tuple(
                first._replace(labels={**first.labels, "repeat": number}) for number in range(len(those))
            ),
            test=scores(those),
            validation=scores((validation or test)[update]),
        )
        for update, those in test.items()
    ]
    return summary._replace(results=results, finalists=[])


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
            "0.535, of SGD; UN (0.530) is 0.005 below SGD (0.535): not told apart by 2 and 2 repeats "
            "(95 % interval -0.074 to +0.064).",
        ),
        (
            [0.53, 0.531, 0.532],
            [0.53, 0.531, 0.533],
            "0.531, of SGD; UN (0.531) is 0.000 below SGD (0.531): level, to within 0.01 "
            "(95 % interval -0.003 to +0.003).",
        ),
        (
            [0.701, 0.702],
            [0.501, 0.502],
            "0.702, of UN; UN (0.702) is 0.200 above SGD (0.502): more than chance "
            "(95 % interval +0.197 to +0.203).",
        ),
        (
            [0.5331, 0.5332, 0.5333],
            [0.5301, 0.5302, 0.5303],
            "0.533, of UN; UN (0.533) is 0.003 above SGD (0.530): more than chance "
            "(95 % interval +0.003 to +0.003).",
        ),
        (
            [0.7, 0.7],
            [0.5, 0.5],
            "0.700, of UN; UN (0.700) is 0.200 above SGD (0.500); runs do not vary, so no test can tell.",
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
    assert said.endswith("; UN (0.700) is 0.200 above SGD (0.500), which so few runs say nothing about.")


def test_un_and_sm_coincide_and_count_as_one(scene_summary: SceneSummary) -> None:
    said = best(scene_summary, {"un": [0.5, 0.52], "sm": [0.54, 0.56], "sgd": [0.52, 0.55]})
    assert said == (
        "The highest mean IoU on the test set is 0.550, of SM; UN and SM (0.530) are 0.005 below SGD "
        "(0.535): not told apart by 2 and 2 repeats (95 % interval -0.095 to +0.085)."
    )


def test_the_rival_is_chosen_by_its_validation_scores(scene_summary: SceneSummary) -> None:
    test = {"un": [0.5, 0.51], "sgd": [0.6, 0.62], "sgd-plain": [0.7, 0.72], "adamw": [0.55, 0.56]}
    validation = {"un": [0.9, 0.9], "sgd": [0.3, 0.3], "sgd-plain": [0.1, 0.2], "adamw": [0.3, 0.4]}
    said = best(scene_summary, test, validation)
    assert "is 0.710, of SGD, no momentum; UN (0.505) is 0.050 below AdamW (0.555): " in said


def test_other_invariant_updates_are_neither_the_papers_nor_rivals(scene_summary: SceneSummary) -> None:
    test = {"un-momentum": [0.7, 0.72], "sm": [0.5, 0.51], "invariant-adamw": [0.8, 0.82], "sgd": [0.4, 0.42]}
    said = best(scene_summary, test)
    assert "is 0.810, of invariant AdamW; SM (0.505) is 0.095 above SGD (0.410): " in said


@pytest.mark.parametrize("updates", [("un", "sm"), ("sgd", "adamw"), ("invariant-adamw", "sgd")])
def test_where_there_is_nothing_to_compare_only_the_highest_score_is_said(
    scene_summary: SceneSummary, updates: tuple[str, str]
) -> None:
    one, other = updates
    said = best(scene_summary, {one: [0.6, 0.64], other: [0.4, 0.5]})
    title = SCENE_UPDATES[one].title
    assert said == f"The highest mean IoU on the test set is 0.620, of {title}."


def test_the_first_sentence_says_what_was_trained(scene_summary: SceneSummary) -> None:
    first, *_ = scene_sentences(scene_summary)
    assert first.startswith(
        "SegNet-Basic was trained from scratch on 14 images of CamVid's road scenes at 24 x 16 pixels: "
        "6 run(s) of 2 epochs on cpu, "  # of both updates: two repeats, and a rate that was not chosen
    )
    assert first.endswith(" in all, after 6 short ones that chose which rates ran in full.")
    without, *_ = scene_sentences(scene_summary._replace(search=[]))
    assert without.endswith(" in all.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "roads"}, "These scenes are drawn by a program: scores say nothing about CamVid."),
        ({"profile": "quick"}, "do not compare with others'"),
    ],
)
def test_what_readers_have_to_know_is_said(
    scene_summary: SceneSummary, change: dict[str, str], words: str
) -> None:
    unsearched = scene_summary._replace(search=[])
    assert scene_remarks(unsearched) == []
    asked = scene_summary.experiment.configuration | change
    summary = unsearched._replace(experiment=scene_summary.experiment._replace(configuration=asked))
    (remark,) = scene_remarks(summary)
    assert words in remark


@pytest.mark.parametrize(
    ("sm", "sgd", "said"), [([0.5], [0.4], True), ([0.5], [], True), ([], [0.4], False)], ids=str
)
def test_that_un_and_sm_coincide_is_said_where_both_have_results(
    scene_summary: SceneSummary, sm: Sample, sgd: Sample, said: bool
) -> None:
    summary = scored(scene_summary._replace(search=[]), {"un": [0.6], "sm": sm, "sgd": sgd})
    remarks = scene_remarks(summary)
    assert remarks == (
        [
            "UN and SM take the same path here, for every filter they move is normalized behind it: they "
            "differ by rounding, which training magnifies."
        ]
        if said
        else []
    )


def searched(summary: SceneSummary, **validation: Sample) -> SceneSummary:
    """Short runs at the rates of the grid with these validation scores; test scores say the opposite."""
    rates = summary.experiment.configuration["protocol"]["rates"]
    points = [
        RatePoint(update, rate, score, 1 - score, False)
        for update, those in validation.items()
        for rate, score in zip(rates, those, strict=True)
    ]
    return summary._replace(search=points)


@pytest.mark.parametrize(
    ("un", "sgd", "titles"),
    [
        ([0.2, 0.3, 0.1], [0.4, 0.5, 0.45], None),
        ([0.2, 0.3, 0.1], [0.5, 0.4, 0.3], "SGD"),
        ([0.2, 0.3, 0.4], [0.4, 0.5, 0.45], "UN"),
        ([0.3, 0.2, 0.1], [0.1, 0.2, 0.3], "UN, SGD"),
    ],
)
def test_a_best_rate_at_the_edge_of_the_grid_is_said(
    scene_summary: SceneSummary, un: Sample, sgd: Sample, titles: str | None
) -> None:
    remarks = scene_remarks(searched(scene_summary, un=un, sgd=sgd))
    assert remarks == (
        [f"The best rate of the search is at the edge of the grid for {titles}."] if titles else []
    )


def test_neither_a_run_that_diverged_nor_the_last_one_so_far_is_an_edge(scene_summary: SceneSummary) -> None:
    summary = searched(scene_summary, un=[0.2, 0.3, 0.1], sgd=[0.4, 0.5, 0.45])
    lost = [point._replace(validation=0.0, test=0.0, diverged=True) for point in summary.search]
    assert scene_remarks(summary._replace(search=lost)) == []
    assert scene_remarks(summary._replace(search=summary.search[:2])) == []  # the best so far is the second


def test_runs_that_are_missing_or_lost_are_counted(scene_summary: SceneSummary) -> None:
    un, sgd = scene_summary.results
    summary = scene_summary._replace(results=[un._replace(missing=2), sgd._replace(diverged=1)], search=[])
    assert scene_remarks(summary) == [
        "2 run(s) have not ended: run the same command to go on.",
        "1 run(s) diverged; they are counted, and left out of all means.",
    ]


def test_camvids_images_are_credited(scene_summary: SceneSummary) -> None:
    assert "Brostow" in pictures_caption(scene_summary)


def asked(summary: SceneSummary, *, compiled: bool = False, **protocol: object) -> dict[str, str]:
    """The protocol in words, had it been asked for otherwise."""
    configuration = dict(summary.experiment.configuration)
    configuration |= {"compiled": compiled, "protocol": configuration["protocol"] | protocol}
    experiment = summary.experiment._replace(configuration=configuration)
    return dict(scene_protocol(summary._replace(experiment=experiment)))


def test_the_protocol_describes_every_update_by_its_title(scene_summary: SceneSummary) -> None:
    facts = asked(scene_summary)
    assert list(facts) == ["training", "UN", "SGD", "evaluation", "rates"]
    assert (facts["UN"], facts["SGD"]) == (SCENE_UPDATES["un"].words, SCENE_UPDATES["sgd"].words)


def test_the_protocol_names_the_rates_and_the_crop(scene_summary: SceneSummary) -> None:
    rates = asked(scene_summary)["rates"]
    assert rates.startswith(
        "one grid for all updates (0.001, 0.1, 1e+30): runs of 1 epochs on crops of 16 x 8 pixels; the best "
        "2 of each update ran in full"
    )
    # No more than there are, and no longer than a full run.
    others = asked(scene_summary, finalists=5, search_epochs=9, search_crop=None)["rates"]
    assert "1e+30): runs of 2 epochs; the best 3 of each update ran in full" in others
    assert asked(scene_summary, rates=[])["rates"] == "as registered with the updates; none were searched for"


def test_the_protocol_says_what_is_done_to_images_and_how_steps_are_computed(
    scene_summary: SceneSummary,
) -> None:
    training = asked(scene_summary)["training"]
    assert (
        "every image seen through a window of 0.6 to 1.2 times its size, mirrored half of the time"
        in training
    )
    assert training.endswith("; bfloat16 on CUDA")
    unzoomed = {"zoom": None, "flip": True, "crop": None}
    other = asked(scene_summary, compiled=True, augmentation=unzoomed, weighting="none")["training"]
    assert "class weights, from the training set: none; every image mirrored half of the time" in other
    assert other.endswith("; bfloat16 on CUDA, through torch.compile")
