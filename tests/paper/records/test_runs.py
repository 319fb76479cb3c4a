import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records.database import Records
from symoptim.paper.records.runs import (
    Ending,
    Epoch,
    RunRow,
    have_ended,
    read_experiment,
    read_runs,
    reading,
    resume,
    write_epoch,
)

RUNS = [RunRow(name, {"phase": "full", "repeat": repeat}, {"rate": 0.1}) for repeat, name in enumerate("ab")]


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Records(tmp_path / "records.sqlite", torch="2.0", device="cpu") as records:
        records.begin("mnist", {"repeats": 2})
        yield records


def epoch_rows(epoch: int, *names: str, loss: float = 1.0) -> dict[str, Epoch]:
    return {name: Epoch(epoch, 0.1, loss, 0.2, 0.3, math.nan) for name in names}


def test_what_is_written_is_read_back(records: Records) -> None:
    resume(records, "e", RUNS)
    write_epoch(records, "e", epoch_rows(1, "a", "b"), [], None)
    write_epoch(records, "e", epoch_rows(2, "a", loss=math.inf), [Ending("a", 2, "enough", True)], None)
    first, second = read_runs(records.connection, "full")
    assert (first.run, first.labels, first.configuration) == (
        "a",
        {"phase": "full", "repeat": 0},
        {"rate": 0.1},
    )
    assert (first.reason, first.diverged, first.has_ended) == ("enough", True, True)
    assert [epoch.loss for epoch in first.curve] == [1.0, math.inf]
    assert math.isnan(first.curve[0].test_error)
    assert not second.has_ended
    assert len(second.curve) == 1
    assert read_runs(records.connection, "selection") == []


def test_taking_up_goes_back_to_the_checkpoint(records: Records) -> None:
    assert resume(records, "e", RUNS) is None
    write_epoch(records, "e", epoch_rows(1, "a", "b"), [], b"after 1")
    write_epoch(records, "e", epoch_rows(2, "a", "b"), [Ending("a", 2, "enough", False)], None)
    assert resume(records, "e", RUNS) == b"after 1"
    assert [len(run.curve) for run in read_runs(records.connection, "full")] == [1, 1]
    assert not any(run.has_ended for run in read_runs(records.connection, "full"))


def test_what_ended_before_the_checkpoint_stays_ended(records: Records) -> None:
    resume(records, "e", RUNS)
    write_epoch(records, "e", epoch_rows(1, "a", "b"), [Ending("a", 1, "enough", False)], b"after 1")
    resume(records, "e", RUNS)
    assert [run.has_ended for run in read_runs(records.connection, "full")] == [True, False]


def test_without_a_checkpoint_an_ensemble_starts_again_and_leaves_others_alone(records: Records) -> None:
    resume(records, "e", RUNS)
    resume(records, "f", [RunRow("c", {"phase": "full"}, {})])
    write_epoch(records, "e", epoch_rows(1, "a", "b"), [], None)
    write_epoch(records, "f", epoch_rows(1, "c"), [Ending("c", 1, "enough", False)], None)
    assert resume(records, "e", RUNS) is None
    assert [len(run.curve) for run in read_runs(records.connection, "full")] == [0, 0, 1]


def test_an_epoch_cannot_be_recorded_twice(records: Records) -> None:
    resume(records, "e", RUNS)
    write_epoch(records, "e", epoch_rows(1, "a"), [], None)
    with pytest.raises(Exception, match="UNIQUE"):
        write_epoch(records, "e", epoch_rows(1, "a"), [], None)


def test_the_last_ending_takes_the_checkpoint_with_it(records: Records) -> None:
    resume(records, "e", RUNS)
    write_epoch(records, "e", epoch_rows(1, "a", "b"), [Ending("a", 1, "enough", False)], b"state")
    assert not have_ended(records, ["a", "b"])
    write_epoch(records, "e", epoch_rows(2, "b"), [Ending("b", 2, "enough", False)], None)
    assert have_ended(records, ["a", "b"])
    assert records.connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)


def test_the_experiment_and_its_sessions_can_be_read_while_it_is_written(records: Records) -> None:
    resume(records, "e", RUNS)
    with reading(records.path) as connection:
        experiment = read_experiment(connection, records.path)
    assert (experiment.name, experiment.configuration, experiment.finished) == ("mnist", {"repeats": 2}, None)
    (session,) = experiment.sessions
    assert session["packages"]["torch"]
    assert experiment.seconds == session["seconds"] > 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"no records at .*none.sqlite"), reading(tmp_path / "none.sqlite"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(RecordsError, match=r"records.sqlite is damaged, or no records file"), reading(path):
        pass


def test_a_file_without_an_experiment_says_so(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2", device="cpu"):
        pass
    with reading(path) as connection, pytest.raises(RecordsError, match="holds no experiment yet"):
        read_experiment(connection, path)
