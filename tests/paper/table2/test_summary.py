from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records.database import Records
from symoptim.paper.table2.summary import summarize
from tests.support.recorded import a_recorded_run, a_summary


def test_a_file_without_an_experiment_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2", device="cpu"):
        pass
    with pytest.raises(RecordsError, match=r"records.sqlite holds no experiment yet"):
        summarize(path)


def test_rates_are_counted_once_per_repeat() -> None:
    runs = [
        a_recorded_run(repeat=k, errors=[0.1], schedule=schedule)._replace(configuration={"rate": rate})
        for k, rate in enumerate((0.01, 0.01, 0.001))
        for schedule in ("exponential", "bold")
    ]
    summary = a_summary(runs, rates=[0.001, 0.01])
    assert summary.rates == [0.01, 0.001]
    (row,) = [row for row in summary.chosen_rates() if any(row.counts)]
    assert (row.network, row.update, row.counts) == ("2-layer Arch1", "SM", (2, 1))


def test_endings_say_when_and_why() -> None:
    runs = [
        a_recorded_run(repeat=0, errors=[0.1] * 26, reason="it got worse"),
        a_recorded_run(repeat=1, errors=[0.1] * 30, reason="it got worse"),
        a_recorded_run(repeat=2, errors=[0.1] * 9, reason=None),
        a_recorded_run(repeat=3, errors=[], reason="every candidate rate diverged", diverged=True),
    ]
    (row,) = a_summary(runs).endings()
    assert row[2:5] == (26, 28, 30)
    assert row.reasons == "2 it got worse; 1 every candidate rate diverged"
