"""Runs in a records file: what they are, every epoch, how they ended, where to go on.

Reading needs neither torch nor the lock.
"""

import json
import math
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from symoptim.errors import RecordsError
from symoptim.paper.records.database import Json, Plain, Records
from symoptim.paper.records.findings import Finding, forget_findings, write_findings
from symoptim.paper.records.schema import VERSION, migrate, require_ours, version_of


class Epoch(NamedTuple):
    """An epoch of a run; NaN where nothing was measured.

    Errors are shares of images that are wrong; of scenes, 1 minus the mean intersection over union.
    """

    number: int
    rate: float
    loss: float
    train_error: float
    validation_error: float
    test_error: float


class RunRow(NamedTuple):
    """A run: its name, what it stands for, all that its result depends on."""

    run: str
    labels: Plain
    configuration: Plain


class Ending(NamedTuple):
    """How a run ended."""

    run: str
    epochs: int
    reason: str
    diverged: bool


class RecordedRun(NamedTuple):
    """A run as recorded: its epochs in order, and how it ended. A run under way has no reason yet."""

    run: str
    labels: Json
    configuration: Json
    reason: str | None
    diverged: bool
    curve: tuple[Epoch, ...]
    seconds: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the run trained to its end."""
        return self.reason is not None


class RecordedExperiment(NamedTuple):
    """An experiment: its configuration, and the processes that worked on it."""

    name: str
    configuration: Json
    device: str
    torch: str
    finished: str | None
    sessions: tuple[Json, ...]

    @property
    def seconds(self) -> float:
        """Time all sessions took together, to the last thing each wrote."""
        return sum(session["seconds"] for session in self.sessions)


def resume(records: Records, ensemble: str, runs: Iterable[RunRow]) -> bytes | None:
    """Begin an ensemble, or go back to its last checkpoint: epochs recorded after that will come again.

    Returns the state saved at the checkpoint; None to start at the beginning.
    """
    if records.session is None:
        raise RecordsError(f"{records.path} is finished: nothing can be added to it")
    with records.writing() as connection:
        rows = [
            (row.run, ensemble, json.dumps(row.labels), json.dumps(row.configuration), records.session)
            for row in runs
        ]
        columns = "(run, ensemble, labels, configuration, session)"
        connection.executemany(f"INSERT OR IGNORE INTO runs {columns} VALUES (?, ?, ?, ?, ?)", rows)
        saved = connection.execute(
            "SELECT epoch, state FROM checkpoints WHERE ensemble = ?", (ensemble,)
        ).fetchone()
        epoch = saved[0] if saved else 0
        mine = "run IN (SELECT run FROM runs WHERE ensemble = ?)"
        connection.execute(f"DELETE FROM epochs WHERE epoch > ? AND {mine}", (epoch, ensemble))
        ending = "epochs = NULL, reason = NULL, diverged = NULL, seconds = NULL"
        connection.execute(f"UPDATE runs SET {ending} WHERE epochs > ? AND ensemble = ?", (epoch, ensemble))
        forget_findings(connection, ensemble)
    return saved[1] if saved else None


def write_epoch(
    records: Records,
    ensemble: str,
    epochs: Mapping[str, Sequence[float]],
    endings: Sequence[Ending],
    state: bytes | None,
    findings: Sequence[Finding] = (),
) -> None:
    """Record an epoch of an ensemble, the runs that ended with it, and perhaps where to go on after it.

    Args:
        records: where.
        ensemble: name of the ensemble.
        epochs: numbers as in :class:`Epoch` of every run that took part; SQLite turns NaN into NULL.
        endings: of the runs that ended.
        state: a checkpoint after this epoch; the one kept before goes. With the last ending all go.
        findings: of runs that ended, where there are any.
    """
    with records.writing() as connection:
        rows = [(run, *numbers) for run, numbers in epochs.items()]
        connection.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.executemany(
            "UPDATE runs SET epochs = ?, reason = ?, diverged = ?, session = ? WHERE run = ?",
            [(e.epochs, e.reason, e.diverged, records.session, e.run) for e in endings],
        )
        write_findings(connection, findings)
        if state is not None:
            row = (ensemble, rows[0][1], state)
            connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", row)
        unended = "SELECT ensemble FROM runs WHERE epochs IS NULL"
        connection.execute(f"DELETE FROM checkpoints WHERE ensemble NOT IN ({unended})")


def have_ended(records: Records, runs: Iterable[str]) -> bool:
    """Whether all these runs are recorded, to their end."""
    with records.explained():
        rows = records.connection.execute("SELECT run FROM runs WHERE epochs IS NOT NULL").fetchall()
    return {run for (run,) in rows}.issuperset(runs)


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open a records file for reading; a copy in memory, where its tables are of an older version."""
    if not path.is_file():
        raise RecordsError(f"there are no records at {path}")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            require_ours(connection, path)
            if version_of(connection) == VERSION:
                yield connection
            else:
                with closing(sqlite3.connect(":memory:")) as copy:
                    connection.backup(copy)
                    migrate(copy)
                    yield copy
    except sqlite3.DatabaseError as error:
        raise RecordsError(f"{path} is damaged, or no records file ({error})") from error


def read_experiment(connection: sqlite3.Connection, path: Path) -> RecordedExperiment:
    """What the file is about; refuse one that is about nothing yet."""
    row = connection.execute("SELECT name, configuration, device, torch, finished FROM experiment").fetchone()
    if row is None:
        raise RecordsError(f"{path} holds no experiment yet")
    name, configuration, device, torch, finished = row
    sessions = tuple(
        {"begun": begun, "seconds": seconds, "command": command, **json.loads(provenance)}
        for begun, seconds, command, provenance in connection.execute(
            "SELECT begun, seconds, command, provenance FROM sessions ORDER BY session"
        )
    )
    return RecordedExperiment(name, json.loads(configuration), device, torch, finished, sessions)


def read_runs(connection: sqlite3.Connection, phase: str) -> list[RecordedRun]:
    """All runs of a phase, with their curves, in the order they were entered."""
    curves: dict[str, list[Epoch]] = {}
    columns = "run, epoch, rate, loss, train_error, validation_error, test_error"
    for run, epoch, *numbers in connection.execute(f"SELECT {columns} FROM epochs ORDER BY run, epoch"):
        measured = (math.nan if number is None else float(number) for number in numbers)
        curves.setdefault(run, []).append(Epoch(epoch, *measured))
    columns = "run, labels, configuration, reason, diverged, seconds"
    runs: list[RecordedRun] = []
    for run, labels, configuration, reason, diverged, seconds in connection.execute(
        f"SELECT {columns} FROM runs ORDER BY rowid"
    ):
        meaning, settings, curve = json.loads(labels), json.loads(configuration), tuple(curves.get(run, ()))
        runs.append(RecordedRun(run, meaning, settings, reason, bool(diverged), curve, seconds))
    return [run for run in runs if run.labels["phase"] == phase]
