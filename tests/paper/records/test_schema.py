"""Files of an older version: they are read as they are, and brought up to date when they are written to."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.records import schema
from symoptim.paper.records.database import Records
from symoptim.paper.records.findings import read_confusions, read_examples
from symoptim.paper.records.runs import RunRow, read_experiment, read_runs, reading, resume

# As they were written then; they never change.
VERSION_1 = """
CREATE TABLE experiment (
    name TEXT NOT NULL, configuration TEXT NOT NULL, code TEXT NOT NULL, torch TEXT NOT NULL,
    device TEXT NOT NULL, finished TEXT
);
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY, begun TEXT NOT NULL, seconds REAL NOT NULL DEFAULT 0,
    command TEXT NOT NULL, provenance TEXT NOT NULL
);
CREATE TABLE runs (
    run TEXT PRIMARY KEY, ensemble TEXT NOT NULL, labels TEXT NOT NULL, configuration TEXT NOT NULL,
    session INTEGER REFERENCES sessions, epochs INTEGER, reason TEXT, diverged INTEGER
);
CREATE TABLE epochs (
    run TEXT NOT NULL REFERENCES runs, epoch INTEGER NOT NULL, rate REAL, loss REAL, train_error REAL,
    validation_error REAL, test_error REAL, PRIMARY KEY (run, epoch)
) WITHOUT ROWID;
CREATE TABLE checkpoints (ensemble TEXT PRIMARY KEY, epoch INTEGER NOT NULL, state BLOB NOT NULL);
PRAGMA application_id = 1398361423;
PRAGMA user_version = 1;
"""

ROWS = {
    "experiment": ("mnist", '{"repeats": 2}', "other code", "2.0", "cpu", "2026-01-01T00:00:00+00:00"),
    "sessions": (1, "2026-01-01T00:00:00+00:00", 61.5, "symoptim reproduce table2", '{"cores": 2}'),
    "runs": ("a", "e", '{"phase": "full"}', '{"rate": 0.1}', 1, 2, "enough", 0),
    "epochs": ("a", 1, 0.1, 2.5, None, 0.25, None),
    "checkpoints": ("e", 1, b"state"),
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A finished experiment in the tables of version 1."""
    path = tmp_path / "records.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(VERSION_1)
        for table, row in ROWS.items():
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return path


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Columns and references of every table: name, type, whether it can be NULL, default, key."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        query = "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite_%'"
        return {
            name: [
                (without_rowid,),
                *connection.execute(f"PRAGMA table_info({name})"),
                *connection.execute(f"PRAGMA foreign_key_list({name})"),
            ]
            for name, without_rowid in connection.execute(query).fetchall()
        }


def version(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return schema.version_of(connection)


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in ROWS}


def test_an_older_file_is_read_and_left_as_it_is(old: Path) -> None:
    before = old.read_bytes()
    with reading(old) as connection:
        experiment = read_experiment(connection, old)
        (run,) = read_runs(connection, "full")
        assert read_examples(connection) == []
        assert read_confusions(connection, "test") == {}
    assert (experiment.name, experiment.configuration, experiment.seconds) == ("mnist", {"repeats": 2}, 61.5)
    assert (run.run, run.reason, run.diverged, run.seconds) == ("a", "enough", False, None)
    assert [epoch.loss for epoch in run.curve] == [2.5]
    assert old.read_bytes() == before
    assert list(old.parent.iterdir()) == [old]


def unfinish(path: Path) -> None:
    """Make the experiment one that is still under way."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE experiment SET finished = NULL")
        connection.execute("UPDATE runs SET epochs = NULL, reason = NULL, diverged = NULL")


def test_who_is_refused_leaves_an_older_file_as_it_was(old: Path) -> None:
    with Records(old, torch="2.0", device="cpu") as records, pytest.raises(RecordsError, match="you asked"):
        records.begin("mnist", {"repeats": 3})
    unfinish(old)
    with Records(old, torch="2.0", device="cpu") as records, pytest.raises(RecordsError, match="other code"):
        records.begin("mnist", {"repeats": 2})  # the version that began it can go on with it
    assert version(old) == 1
    assert set(tables(old)) == set(ROWS)


def test_a_finished_older_file_is_left_as_it_was_too(old: Path) -> None:
    with Records(old, torch="2.0", device="cpu") as records:
        assert not records.begin("mnist", {"repeats": 2})
    assert version(old) == 1
    assert rows(old) == {table: [row] for table, row in ROWS.items()}


def test_an_older_file_that_is_written_to_is_brought_up_to_date_and_keeps_its_rows(
    old: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("symoptim.paper.records.database.code_digest", lambda: "other code")
    unfinish(old)
    new = tmp_path / "new.sqlite"
    with Records(new, torch="2.0", device="cpu"), Records(old, torch="2.0", device="cpu") as records:
        assert records.begin("mnist", {"repeats": 2})
        assert resume(records, "e", []) == b"state"
    assert version(old) == schema.VERSION
    assert tables(old) == tables(new)
    assert {"confusions", "examples", "predictions"} <= set(tables(new))


def test_an_update_of_the_tables_that_fails_changes_nothing(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symoptim.paper.records.database.code_digest", lambda: "other code")
    unfinish(old)
    before = (tables(old), rows(old))
    monkeypatch.setitem(schema.MIGRATIONS, 1, f"{schema.MIGRATIONS[1]} CREATE TABLE runs (twice);")
    with (
        Records(old, torch="2.0", device="cpu") as records,
        pytest.raises(RecordsError, match="table runs already exists"),
    ):
        records.begin("mnist", {"repeats": 2})
    assert version(old) == 1
    assert (tables(old), rows(old)) == before


def test_every_older_version_can_be_brought_up_to_date() -> None:
    assert set(schema.MIGRATIONS) == set(range(1, schema.VERSION))


def test_who_reads_a_file_of_this_version_sees_what_is_written_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2.0", device="cpu") as records:
        records.begin("mnist", {})
        with reading(path) as connection:
            assert read_runs(connection, "full") == []
            resume(records, "e", [RunRow("a", {"phase": "full"}, {})])
            assert [run.run for run in read_runs(connection, "full")] == ["a"]
