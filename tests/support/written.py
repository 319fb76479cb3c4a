"""What is in a records file, for tests to compare."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from symoptim.paper.records.runs import RecordedRun, read_runs, reading

QUERIES = (
    "SELECT run, ensemble, labels, configuration, epochs, reason, diverged FROM runs ORDER BY 1",
    "SELECT * FROM epochs ORDER BY run, epoch",
    "SELECT * FROM confusions ORDER BY run, part",
    "SELECT * FROM predictions ORDER BY run, example",
    "SELECT * FROM examples ORDER BY example",
    "SELECT * FROM checkpoints",
)


def everything(path: Path) -> list[list[tuple[object, ...]]]:
    """All that is recorded about runs, but for which session did it and how long it took."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [connection.execute(query).fetchall() for query in QUERIES]


def runs_of(path: Path, phase: str) -> list[RecordedRun]:
    """Recorded runs of a phase."""
    with reading(path) as connection:
        return read_runs(connection, phase)


def set_checkpoints(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Save the state after so many seconds, however long saving takes."""
    monkeypatch.setattr("symoptim.paper.runner.CHECKPOINT_SECONDS", seconds)
    monkeypatch.setattr("symoptim.paper.runner.CHECKPOINT_SHARE", 1e9)
