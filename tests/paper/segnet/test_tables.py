import csv
import io
import math
import statistics

import pytest

from symoptim.paper.data.classes import CLASSES
from symoptim.paper.segnet import tables
from symoptim.paper.segnet.summary import RatePoint, SceneSummary
from symoptim.paper.segnet.tables import PUBLISHED


def otherwise(summary: SceneSummary, **changes: str) -> SceneSummary:
    """The same, had something else been asked for."""
    asked = summary.experiment.configuration | changes
    return summary._replace(experiment=summary.experiment._replace(configuration=asked))


def test_our_updates_come_first_and_the_best_of_them_before_the_others(scene_summary: SceneSummary) -> None:
    lines = tables.score_lines(scene_summary)
    assert [line.is_ours for line in lines] == [True] * 2 + [False] * len(PUBLISHED)
    best = max(scene_summary.results, key=lambda result: result.mean)
    assert lines[0].system == best.title
    assert f"rate {best.rate:g}" in lines[0].remark
    assert "n = 2" in lines[0].remark


def test_what_was_not_published_is_left_empty(scene_summary: SceneSummary) -> None:
    texts = {line.remark: line.texts for line in tables.score_lines(scene_summary)}
    assert texts["arXiv:1606.02147"] == ("", ".683", ".513")
    assert texts["arXiv:1505.07293"] == (".843", ".629", "")


@pytest.mark.parametrize("change", [{"data": "roads"}, {"profile": "quick"}], ids=str)
def test_published_scores_stand_only_beside_what_compares(
    scene_summary: SceneSummary, change: dict[str, str]
) -> None:
    assert all(line.is_ours for line in tables.score_lines(otherwise(scene_summary, **change)))


def test_a_score_is_mean_and_deviation_over_repeats(scene_summary: SceneSummary) -> None:
    result = max(scene_summary.results, key=lambda result: result.mean)
    text = tables.score_lines(scene_summary)[0].texts[2]
    mean, deviation = (float(part) for part in text.split(" ± "))
    assert mean == pytest.approx(statistics.fmean(result.mean_ious), abs=5e-4)
    assert deviation == pytest.approx(statistics.stdev(result.mean_ious), abs=5e-4)


def test_a_single_run_has_no_deviation(scene_summary: SceneSummary) -> None:
    single = [r._replace(runs=r.runs[:1], test=r.test[:1]) for r in scene_summary.results]
    lines = tables.score_lines(scene_summary._replace(results=single))
    assert "±" not in "".join(lines[0].texts)


def test_the_csv_of_scores_has_every_run_on_every_set(scene_summary: SceneSummary) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.scores_csv(scene_summary))))
    assert len(rows) == 2 * 2 * 3
    for row in rows:
        ious = [float(row[f"iou_{kind.name}"]) for kind in CLASSES]
        there = [iou for iou in ious if iou == iou]
        assert float(row["mean_iou"]) == pytest.approx(statistics.fmean(there))


def test_the_csv_of_curves_has_every_epoch_of_every_repeat(scene_summary: SceneSummary) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.curves_csv(scene_summary))))
    assert len(rows) == 2 * 2 * 2
    for row, epoch in zip(
        rows, (e for r in scene_summary.results for run in r.runs for e in run.curve), strict=True
    ):
        assert (int(row["epoch"]), float(row["loss"])) == (epoch.number, epoch.loss)
        assert float(row["validation_mean_iou"]) == pytest.approx(1 - epoch.validation_error)


def test_a_score_that_was_not_measured_is_left_empty(scene_summary: SceneSummary) -> None:
    (first, *runs), *_ = (result.runs for result in scene_summary.results)
    unmeasured = first._replace(curve=(first.curve[0]._replace(validation_error=math.nan), *first.curve[1:]))
    un = scene_summary.results[0]._replace(runs=(unmeasured, *runs))
    rows = list(csv.DictReader(io.StringIO(tables.curves_csv(scene_summary._replace(results=[un])))))
    assert [row["validation_mean_iou"] == "" for row in rows] == [True, False, False, False]


def test_a_run_that_compiled_does_not_count_in_the_time_of_a_run(scene_summary: SceneSummary) -> None:
    un, _ = scene_summary.results
    runs = tuple(un.runs[0]._replace(seconds=seconds) for seconds in (116.0, 84.0, 85.0))
    assert un._replace(runs=runs).seconds == 85.0


def test_classes_have_the_mean_of_the_repeats(scene_summary: SceneSummary) -> None:
    rows = tables.class_rows(scene_summary)
    assert [name for name, _ in rows] == [kind.name for kind in CLASSES]
    for place, result in enumerate(scene_summary.results):
        road = statistics.fmean(scores.ious[3] for scores in result.test)
        assert rows[3][1][place] == f"{road:.3f}".removeprefix("0")


def test_a_class_that_is_nowhere_to_be_seen_has_no_score(scene_summary: SceneSummary) -> None:
    un, sgd = scene_summary.results
    without = [scores._replace(ious=(*scores.ious[:3], math.nan, *scores.ious[4:])) for scores in un.test]
    rows = tables.class_rows(scene_summary._replace(results=[un._replace(test=tuple(without)), sgd]))
    before = tables.class_rows(scene_summary)
    assert rows[3] == ("road", ["", before[3][1][1]])
    assert rows[:3] + rows[4:] == before[:3] + before[4:]


def test_rates_are_columns_and_a_run_that_diverged_is_called_so(scene_summary: SceneSummary) -> None:
    text = tables.rates_markdown(scene_summary).splitlines()
    assert text[0] == "| rate | 0.001 | 0.1 | 1e+30 | spread |"
    assert [line.split(" | ")[3] for line in text[2:]] == ["diverged", "diverged"]
    for _, texts, spread in tables.rate_rows(scene_summary):
        assert float(spread) == max(map(float, texts[:2]))  # a run that diverged scores 0


def test_full_runs_that_helped_to_choose_a_rate_have_their_scores_or_are_said_to_have_diverged(
    scene_summary: SceneSummary,
) -> None:
    points = [RatePoint("un", 0.1, 0.51, 0.432, False), RatePoint("sgd", 0.03, 0.0, 0.0, True)]
    assert tables.finalist_rows(scene_summary._replace(finalists=points)) == [
        ("UN", "0.1", ".510", ".432"),
        ("SGD", "0.03", "diverged", ""),
    ]


def test_the_csv_of_rates_has_both_rounds(scene_summary: SceneSummary) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.rates_csv(scene_summary))))
    assert [row["round"] for row in rows] == ["search"] * 6 + ["final"] * 4
    assert sum(row["diverged"] == "1" for row in rows) == 2
