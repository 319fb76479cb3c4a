import sqlite3
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records.findings import read_confusions
from symoptim.paper.records.runs import read_runs, reading
from symoptim.paper.records.schema import open_file
from symoptim.paper.segnet.scores import scores_of
from symoptim.paper.segnet.summary import RatePoint, SceneSummary, spreads, summarize_scenes
from tests.paper.segnet.conftest import SMALL, asked_otherwise


def test_an_update_is_shown_at_the_rate_that_did_best_on_the_validation_set(
    scene_records: Path, scene_summary: SceneSummary
) -> None:
    with reading(scene_records) as connection:
        runs = [run for run in read_runs(connection, "full") if run.labels["repeat"] == 0]
    for result in scene_summary.results:
        mine = [run for run in runs if run.labels["update"] == result.update]
        assert len(mine) == 2
        best = min(mine, key=lambda run: run.curve[-1].validation_error)
        assert result.rate == best.labels["rate"]
        assert [run.labels["repeat"] for run in result.runs] == [0, 1]


def test_scores_are_those_of_the_recorded_matrices(scene_records: Path, scene_summary: SceneSummary) -> None:
    with reading(scene_records) as connection:
        matrices = read_confusions(connection, "test")
    for result in scene_summary.results:
        assert result.test == tuple(scores_of(matrices[run.run]) for run in result.runs)
        assert result.mean == pytest.approx(sum(result.mean_ious) / 2)
        for run, scores in zip(result.runs, result.test, strict=True):
            assert 1 - run.curve[-1].test_error == pytest.approx(scores.mean_iou)


def test_runs_of_the_search_that_diverged_score_zero(scene_summary: SceneSummary) -> None:
    lost = [point for point in scene_summary.search if point.rate == 1e30]
    assert [(point.test, point.diverged) for point in lost] == [(0.0, True)] * 2
    assert all(point.test > 0 for point in scene_summary.search if point.rate < 1)


def test_the_spread_is_the_largest_score_minus_the_smallest() -> None:
    points = [RatePoint("un", rate, 0.9, score, False) for rate, score in ((0.1, 0.4), (0.2, 0.5))]
    points.append(RatePoint("sgd", 0.1, 0.9, 0.3, False))
    assert spreads(points) == pytest.approx({"un": 0.1, "sgd": 0.0})


def test_every_example_has_a_picture_of_every_update(scene_summary: SceneSummary) -> None:
    names = {example.name for example in scene_summary.examples}
    assert len(names) == 4
    assert {update: set(made) for update, made in scene_summary.pictures.items()} == {
        "un": names,
        "sgd": names,
    }


def test_an_update_that_always_diverged_has_lost_all_its_runs(scene_folder: Path) -> None:
    path = scene_folder / "records.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET diverged = 1 WHERE run LIKE 'full/sgd/%'")
        connection.execute("DELETE FROM runs WHERE run LIKE 'full/sgd/%/1'")
    un, sgd = summarize_scenes(path).results
    assert (un.diverged, un.missing, len(un.test)) == (0, 0, 2)
    assert (sgd.diverged, sgd.missing, sgd.test, sgd.rate) == (2, 0, (), None)


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_while_another_rate_may_do_better_nothing_is_lost(scene_folder: Path, repeats: int) -> None:
    path = scene_folder / "records.sqlite"
    asked_otherwise(scene_folder, protocol=SMALL.as_dict() | {"repeats": repeats})
    with sqlite3.connect(path) as connection:
        first, second = connection.execute("SELECT run FROM runs WHERE run LIKE 'full/sgd/%/0'").fetchall()
        connection.execute("UPDATE runs SET diverged = 1 WHERE run = ?", first)
        connection.execute("UPDATE runs SET reason = NULL, diverged = NULL WHERE run = ?", second)
        connection.execute("DELETE FROM runs WHERE run LIKE 'full/sgd/%/1'")
        connection.execute("UPDATE experiment SET finished = NULL")
    _, sgd = summarize_scenes(path).results
    assert (sgd.diverged, sgd.missing, sgd.test, sgd.rate) == (0, repeats, (), None)


@pytest.mark.parametrize("repeats", [1, 2])
def test_where_the_only_rate_that_got_through_the_search_diverged_all_is_lost(
    scene_folder: Path, repeats: int
) -> None:
    path = scene_folder / "records.sqlite"
    asked_otherwise(scene_folder, protocol=SMALL.as_dict() | {"repeats": repeats})
    with sqlite3.connect(path) as connection:
        _, (second,) = connection.execute("SELECT run FROM runs WHERE run LIKE 'full/sgd/%/0'").fetchall()
        connection.execute("UPDATE runs SET diverged = 1 WHERE run LIKE 'full/sgd/%'")
        connection.execute(f"UPDATE runs SET diverged = 1 WHERE run = 'search/sgd/{second.split('/')[2]}'")
        connection.execute("DELETE FROM runs WHERE run = ?", (second,))
        given_up = "labels = json_set(labels, '$.rate', NULL)"
        connection.execute(f"UPDATE runs SET {given_up} WHERE run LIKE 'full/sgd/%/1'")
        connection.execute("DELETE FROM runs WHERE run LIKE 'full/%/1' AND ? = 1", (repeats,))
    _, sgd = summarize_scenes(path).results
    assert (sgd.diverged, sgd.missing, sgd.test, sgd.rate) == (repeats, 0, (), None)


def test_runs_that_have_not_ended_are_missing(scene_folder: Path) -> None:
    path = scene_folder / "records.sqlite"
    with sqlite3.connect(path) as connection:
        ended = "epochs = NULL, reason = NULL, diverged = NULL"
        connection.execute(f"UPDATE runs SET {ended} WHERE run LIKE 'full/%/1' OR run LIKE 'full/sgd/%'")
        connection.execute("UPDATE experiment SET finished = NULL")
    un, sgd = summarize_scenes(path).results
    assert (un.diverged, un.missing, len(un.test)) == (0, 1, 1)
    assert (sgd.diverged, sgd.missing, len(sgd.test)) == (0, 2, 0)


def test_records_without_an_experiment_are_refused(tmp_path: Path) -> None:
    open_file(tmp_path / "records.sqlite").close()
    with pytest.raises(RecordsError, match="holds no experiment yet"):
        summarize_scenes(tmp_path / "records.sqlite")
