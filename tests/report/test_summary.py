from pathlib import Path

import pytest

from recorded import a_recorded_run, an_experiment
from symoptim.errors import RecordsError
from symoptim.records.store import Records
from symoptim.report import table2, trajectories
from symoptim.report.summary import Summary, provenance, summarize, write_summary


def test_the_files_say_where_the_numbers_come_from(tmp_path: Path) -> None:
    experiment, runs = an_experiment(), [a_recorded_run(repeat=0, errors=[0.1])]
    summary = Summary(experiment, runs, table2.cells(experiment, runs), trajectories.panels(experiment, runs))
    paths = write_summary(summary, tmp_path)
    assert [path.name for path in paths] == ["table2.md", "table2.csv", "trajectories.csv"]
    text = paths[0].read_text(encoding="utf-8")
    assert text.endswith(provenance(experiment))
    for fact in ("`symoptim reproduce table2`", "61 s in 1 session", "seed 0", "torch 2.13.0", "not yet"):
        assert fact in text


def test_a_file_without_an_experiment_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2", device="cpu"):
        pass
    with pytest.raises(RecordsError, match=r"records.sqlite holds no experiment yet"):
        summarize(path)
