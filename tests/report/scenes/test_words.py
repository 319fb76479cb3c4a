from collections.abc import Sequence

import pytest

from symoptim.records.scores import Scores
from symoptim.report.scenes.summary import SceneSummary
from symoptim.report.scenes.words import pictures_caption, scene_protocol, scene_remarks, scene_sentences


def scored(summary: SceneSummary, **by_update: Sequence[float]) -> SceneSummary:
    """The same runs with these mean IoUs."""
    results = [
        result._replace(test=tuple(Scores(0.9, 0.7, score, (), ()) for score in by_update[result.update]))
        for result in summary.results
    ]
    return summary._replace(results=results)


def test_updates_that_differ_by_chance_are_called_level(scene_summary: SceneSummary) -> None:
    _, best, _ = scene_sentences(scored(scene_summary, un=[0.52, 0.54], sgd=[0.53, 0.54]))
    assert "The highest mean IoU on the test set is 0.535, of SGD" in best
    assert "UN, 0.530) is 0.005 below the best other one (SGD): level by Welch's test" in best


def test_updates_that_differ_by_more_are_told_apart(scene_summary: SceneSummary) -> None:
    _, best, _ = scene_sentences(scored(scene_summary, un=[0.701, 0.702], sgd=[0.501, 0.502]))
    assert "0.200 above the best other one (SGD): a difference by Welch's test" in best


def test_of_single_runs_nothing_is_claimed(scene_summary: SceneSummary) -> None:
    _, best, _ = scene_sentences(scored(scene_summary, un=[0.7], sgd=[0.5]))
    assert best.endswith("(SGD), of one run each.")


def test_the_first_sentence_says_what_was_trained(scene_summary: SceneSummary) -> None:
    first, *_ = scene_sentences(scene_summary)
    assert first.startswith("SegNet-Basic was trained from scratch on 14 of CamVid's road scenes at 24 x 16")
    assert "after 6 short ones that chose the rates" in first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "roads"}, "drawn by a program"),
        ({"profile": "quick"}, "do not compare with others'"),
    ],
)
def test_what_readers_have_to_know_is_said(
    scene_summary: SceneSummary, change: dict[str, str], words: str
) -> None:
    assert scene_remarks(scene_summary) == []
    asked = scene_summary.experiment.configuration | change
    summary = scene_summary._replace(experiment=scene_summary.experiment._replace(configuration=asked))
    (remark,) = scene_remarks(summary)
    assert words in remark


def test_runs_that_are_missing_or_lost_are_counted(scene_summary: SceneSummary) -> None:
    un, sgd = scene_summary.results
    summary = scene_summary._replace(results=[un._replace(missing=2), sgd._replace(diverged=1)])
    assert scene_remarks(summary) == [
        "2 run(s) have not ended: run the same command to go on.",
        "1 run(s) diverged; they are counted, and left out of all means.",
    ]


def test_camvids_images_are_credited(scene_summary: SceneSummary) -> None:
    assert "Brostow" in pictures_caption(scene_summary)


def test_the_protocol_names_the_rates_and_the_crop(scene_summary: SceneSummary) -> None:
    facts = dict(scene_protocol(scene_summary))
    assert "0.001, 0.1, 1e+30" in facts["rates"]
    assert "crops of 16 x 8 pixels" in facts["rates"]
    assert "a window of 0.6 to 1.2 times its size" in facts["training"]
