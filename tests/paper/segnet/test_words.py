import pytest

from symoptim.paper.segnet.summary import RatePoint, SceneSummary
from symoptim.paper.segnet.updates import SCENE_UPDATES
from symoptim.paper.segnet.words import (
    pictures_caption,
    scene_protocol,
    scene_remarks,
    scene_sentences,
)
from tests.paper.segnet.conftest import Sample, scored


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
            "differ by rounding, which training magnifies. A repeat of both counts as one observation."
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
        ([0.2, 0.3, 0.1], [0.5, 0.4, 0.3], "SGD (0.001)"),
        ([0.2, 0.3, 0.4], [0.4, 0.5, 0.45], "UN (1e+30)"),
        ([0.3, 0.2, 0.1], [0.1, 0.2, 0.3], "UN (0.001) and SGD (1e+30)"),
    ],
)
def test_a_best_rate_at_the_edge_of_the_grid_is_said(
    scene_summary: SceneSummary, un: Sample, sgd: Sample, titles: str | None
) -> None:
    remarks = scene_remarks(searched(repeated_at(scene_summary, 0.1, 0.1), un=un, sgd=sgd))
    said = (
        f"The best rate of the short runs is at the edge of the grid for {titles}: one beyond may be better."
    )
    assert remarks == ([said] if titles else [])


def repeated_at(summary: SceneSummary, *rates: float) -> SceneSummary:
    """The same runs, had these been the rates that were repeated."""
    results = [
        result._replace(
            runs=tuple(run._replace(configuration={**run.configuration, "rate": rate}) for run in result.runs)
        )
        for result, rate in zip(summary.results, rates, strict=True)
    ]
    return summary._replace(results=results)


@pytest.mark.parametrize(
    ("rates", "titles"),
    [((0.1, 1e-3), "SGD (0.001)"), ((1e30, 0.1), "UN (1e+30)"), ((1e-3, 1e30), "UN (0.001) and SGD (1e+30)")],
)
def test_a_repeated_rate_at_the_edge_of_the_grid_is_said_too(
    scene_summary: SceneSummary, rates: tuple[float, float], titles: str
) -> None:
    inside = searched(repeated_at(scene_summary, *rates), un=[0.2, 0.3, 0.1], sgd=[0.4, 0.5, 0.45])
    assert scene_remarks(inside) == [
        f"The rate that was repeated is at the edge of the grid for {titles}: one beyond may be better."
    ]
    assert scene_remarks(inside._replace(search=[])) == []


def test_neither_a_run_that_diverged_nor_the_last_one_so_far_is_an_edge(scene_summary: SceneSummary) -> None:
    inside = repeated_at(scene_summary, 0.1, 0.1)
    summary = searched(inside, un=[0.2, 0.3, 0.1], sgd=[0.4, 0.5, 0.45])
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


def test_what_the_score_owes_to_the_rate_is_said_the_least_first(scene_summary: SceneSummary) -> None:
    summary = searched(scene_summary, un=[0.2, 0.3, 0.1], sgd=[0.4, 0.5, 0.45])
    assert scene_sentences(summary)[-1] == (
        "Over the grid of rates the test score of a short run varies by 0.10 with SGD and 0.20 with UN."
    )


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
