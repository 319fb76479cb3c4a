import csv
import io
import math

import pytest

from symoptim.paper.table2.trajectories import as_csv, panels
from tests.support.recorded import a_recorded_run, an_experiment

WHERE = {"architecture": "arch2", "depth": 4, "schedule": "bold", "update": "un"}


def panel_of(*runs):
    (panel,) = [p for p in panels(an_experiment(), runs) if (p.architecture, p.update) == ("arch2", "un")]
    return panel


def test_there_are_three_rows_and_two_columns_of_the_deepest_networks() -> None:
    drawn = [(p.architecture, p.depth, p.schedule, p.update) for p in panels(an_experiment(), [])]
    assert drawn == [
        (architecture, 4, schedule, update)
        for architecture, schedule in (("arch1", "exponential"), ("arch2", "bold"))
        for update in ("b-sgd", "sm", "un")
    ]


def test_a_run_that_has_stopped_no_longer_counts() -> None:
    long = a_recorded_run(repeat=0, errors=[0.4, 0.2, 0.1], **WHERE)
    short = a_recorded_run(repeat=1, errors=[0.6, 0.4], **WHERE)
    points = panel_of(long, short).points
    assert [point.running for point in points] == [2, 2, 1]
    assert [point.mean for point in points] == pytest.approx([0.5, 0.3, 0.1])
    assert points[0].deviation == pytest.approx(math.sqrt(0.02))
    assert math.isnan(points[2].deviation)


def test_diverged_runs_and_other_depths_are_left_out() -> None:
    diverged = a_recorded_run(repeat=0, errors=[0.9], diverged=True, **WHERE)
    shallow = a_recorded_run(repeat=1, errors=[0.9], **{**WHERE, "depth": 2})
    sound = a_recorded_run(repeat=2, errors=[0.1], **WHERE)
    (point,) = panel_of(diverged, shallow, sound).points
    assert (point.mean, point.running) == (0.1, 1)


def test_csv_has_a_line_per_panel_and_epoch() -> None:
    run = a_recorded_run(repeat=0, errors=[0.4, 0.2], **WHERE)
    rows = list(csv.DictReader(io.StringIO(as_csv([panel_of(run)]))))
    assert [(row["update"], row["epoch"], row["mean"], row["running"]) for row in rows] == [
        ("un", "1", "0.4", "1"),
        ("un", "2", "0.2", "1"),
    ]
