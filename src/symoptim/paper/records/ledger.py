"""What is written down about runs: who they are, every epoch, how they ended, and where to go on."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from symoptim.errors import RecordsError
from symoptim.paper.records.findings import Finding, forget_findings, write_findings
from symoptim.paper.records.store import Plain, Records


class RunRow(NamedTuple):
    """A run: its name, what it stands for, all that its result depends on."""

    run: str
    labels: Plain
    configuration: Plain


class EpochRow(NamedTuple):
    """An epoch of a run; SQLite turns NaN into NULL."""

    run: str
    epoch: int
    rate: float
    loss: float
    train_error: float
    validation_error: float
    test_error: float


class Ending(NamedTuple):
    """How a run ended."""

    run: str
    epochs: int
    reason: str
    diverged: bool


def take_up(records: Records, ensemble: str, runs: Iterable[RunRow]) -> bytes | None:
    """Begin an ensemble, or go back to its last checkpoint: epochs recorded after that will come again.

    Args:
        records: where.
        ensemble: name of the ensemble.
        runs: its runs.

    Returns:
        The state saved at the checkpoint; None to start at the beginning.

    Raises:
        RecordsError: the experiment is finished.
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
    epochs: Sequence[EpochRow],
    endings: Sequence[Ending],
    state: bytes | None,
    findings: Sequence[Finding] = (),
) -> None:
    """Record an epoch of an ensemble, the runs that ended with it, and perhaps where to go on after it.

    Args:
        records: where.
        ensemble: name of the ensemble.
        epochs: one row for every run that took part.
        endings: of the runs that ended.
        state: a checkpoint after this epoch; the one kept before goes. With the last ending all go.
        findings: of runs that ended, where there are any.
    """
    with records.writing() as connection:
        connection.executemany("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?)", epochs)
        connection.executemany(
            "UPDATE runs SET epochs = ?, reason = ?, diverged = ?, session = ? WHERE run = ?",
            [(e.epochs, e.reason, e.diverged, records.session, e.run) for e in endings],
        )
        write_findings(connection, findings)
        if state is not None:
            connection.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (ensemble, epochs[0].epoch, state)
            )
        unended = "SELECT ensemble FROM runs WHERE epochs IS NULL"
        connection.execute(f"DELETE FROM checkpoints WHERE ensemble NOT IN ({unended})")


def has_ended(records: Records, runs: Iterable[str]) -> bool:
    """Whether all these runs are recorded, to their end."""
    with records.explained():
        rows = records.connection.execute("SELECT run FROM runs WHERE epochs IS NOT NULL").fetchall()
    return {run for (run,) in rows}.issuperset(runs)
