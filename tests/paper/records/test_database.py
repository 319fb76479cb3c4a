import contextlib
import sqlite3
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records.database import Records
from symoptim.paper.records.runs import resume
from symoptim.paper.records.schema import VERSION

CONFIGURATION = {"data": "mnist", "repeats": 3, "updates": ("sm", "un")}


def open_records(path: Path, *, torch: str = "2.0", device: str = "cpu") -> Records:
    return Records(path, torch=torch, device=device)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A records file with an unfinished experiment."""
    path = tmp_path / "folder" / "records.sqlite"
    with open_records(path) as records:
        records.begin("mnist", CONFIGURATION)
    return path


def test_the_same_experiment_can_be_taken_up(path: Path) -> None:
    with open_records(path) as records:
        records.begin("mnist", CONFIGURATION)
        sessions = records.connection.execute("SELECT session FROM sessions").fetchall()
    assert sessions == [(1,), (2,)]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mnist", {"repeats": 4}, "made with repeats 3, you asked for repeats 4: ask for the same, or"),
        ("mnist", {"updates": ("sm",)}, "made with updates sm, un, you asked for updates sm"),
        ("mnist", {"seed": 1}, "made with seed None, you asked for seed 1"),
        ("segnet", {}, "made with experiment mnist, you asked for experiment segnet"),
    ],
)
def test_another_experiment_is_refused(
    path: Path, name: str, change: dict[str, object], message: str
) -> None:
    with open_records(path) as records, pytest.raises(RecordsError, match=message):
        records.begin(name, {**CONFIGURATION, **change})


def test_options_of_one_name_in_two_places_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with open_records(path) as records:
        records.begin("mnist", {"a": {"decay": 1}, "b": {"decay": 2}})
        with pytest.raises(RecordsError, match="made with decay 1, you asked for decay 3"):
            records.begin("mnist", {"a": {"decay": 3}, "b": {"decay": 2}})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"torch": "3.0"}, "begun with torch 2.0; this is torch 3.0, and results would mix"),
        ({"device": "H200"}, "begun with device cpu; this is device H200"),
    ],
)
def test_an_unfinished_experiment_is_not_taken_up_in_other_circumstances(
    path: Path, option: dict[str, str], message: str
) -> None:
    with open_records(path, **option) as records, pytest.raises(RecordsError, match=message):
        records.begin("mnist", CONFIGURATION)


def test_nor_by_other_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symoptim.paper.records.database.code_digest", lambda: "other")
    with open_records(path) as records, pytest.raises(RecordsError, match="this is code other"):
        records.begin("mnist", CONFIGURATION)


def test_a_finished_experiment_can_be_looked_at_anywhere(path: Path) -> None:
    with open_records(path) as records:
        records.begin("mnist", CONFIGURATION)
        records.finish()
    with open_records(path, torch="3.0", device="H200") as records:
        records.begin("mnist", CONFIGURATION)
        sessions = records.connection.execute("SELECT count(*) FROM sessions").fetchone()
    assert sessions == (2,)  # looking is not working


def test_nothing_is_added_to_a_finished_experiment(path: Path) -> None:
    with open_records(path) as records:
        assert records.begin("mnist", CONFIGURATION)
        records.finish()
    with open_records(path) as records:
        assert not records.begin("mnist", CONFIGURATION)
        with pytest.raises(RecordsError, match="is finished: nothing can be added"):
            resume(records, "e", [])


def test_at_rest_the_records_are_one_file(path: Path) -> None:
    assert [file.name for file in path.parent.iterdir() if not file.name.startswith(".")] == [path.name]


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.write_text("my diary " * 100)
    with pytest.raises(RecordsError, match=r"damaged, or no records file .*move it away"):
        open_records(path)
    assert path.read_text() == "my diary " * 100


def test_a_truncated_file_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordsError, match="damaged"):
        open_records(path)


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(RecordsError, match="none of symoptim's records: choose another --out"):
        open_records(path)


@pytest.mark.parametrize("version", [VERSION + 1, 0])
def test_a_file_of_an_unknown_version_is_refused(path: Path, version: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(RecordsError, match=f"written by another symoptim .*version {version}"):
        open_records(path)


def test_a_file_whose_maker_was_killed_before_it_had_tables_is_used(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.touch()
    with open_records(path) as records:
        records.begin("mnist", CONFIGURATION)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match="file is no folder, or below a file: choose another --out"):
        open_records(tmp_path / "file" / "records.sqlite")


def test_a_failed_transaction_leaves_nothing(path: Path) -> None:
    with open_records(path) as records:
        with contextlib.suppress(ZeroDivisionError), records.writing() as connection:
            connection.execute("INSERT INTO checkpoints VALUES ('a', 1, x'00')")
            raise ZeroDivisionError
        assert records.connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)


def test_a_refused_file_is_not_locked(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(RecordsError):
        open_records(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION}")
    with open_records(path):
        pass
