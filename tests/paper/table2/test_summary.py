from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records.database import Records
from symoptim.paper.table2.summary import provenance, summarize
from tests.support.recorded import an_experiment


def test_the_provenance_says_where_the_numbers_come_from() -> None:
    text = provenance(an_experiment())
    for fact in (
        "command: symoptim reproduce table2",
        "61 s in 1 session",
        "seed 0",
        "torch 2.13.0",
        "not yet",
    ):
        assert fact in text
    assert "only the profile paper compares" not in text


def test_a_small_experiment_says_that_it_does_not_compare() -> None:
    experiment = an_experiment()
    experiment.configuration["profile"] = "quick"
    assert "only the profile paper compares" in provenance(experiment)


def test_a_file_without_an_experiment_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2", device="cpu"):
        pass
    with pytest.raises(RecordsError, match=r"records.sqlite holds no experiment yet"):
        summarize(path)
