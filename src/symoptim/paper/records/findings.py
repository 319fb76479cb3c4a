"""What runs on scenes leave besides their curves: confusion matrices, and pictures of some examples."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Matrix = Sequence[Sequence[int]]


class Finding(NamedTuple):
    """Of a run: seconds it took, pixels by true and predicted class of every set, its labels of examples."""

    run: str
    seconds: float
    confusions: Mapping[str, Matrix]
    pictures: Mapping[str, bytes]


class Example(NamedTuple):
    """An example scene: its image (JPEG) and its true labels (gray PNG)."""

    name: str
    image: bytes
    truth: bytes


def write_findings(connection: sqlite3.Connection, findings: Iterable[Finding]) -> None:
    """Record findings; within the transaction that records the ending of their runs."""
    for run, seconds, confusions, pictures in findings:
        connection.execute("UPDATE runs SET seconds = ? WHERE run = ?", (seconds, run))
        connection.executemany(
            "INSERT INTO confusions VALUES (?, ?, ?)",
            [(run, part, json.dumps(matrix)) for part, matrix in confusions.items()],
        )
        connection.executemany(
            "INSERT INTO predictions VALUES (?, ?, ?)",
            [(run, example, labels) for example, labels in pictures.items()],
        )


def forget_findings(connection: sqlite3.Connection, ensemble: str) -> None:
    """Take back what was found of runs that are to end again."""
    again = "SELECT run FROM runs WHERE ensemble = ? AND epochs IS NULL"
    connection.execute(f"DELETE FROM confusions WHERE run IN ({again})", (ensemble,))
    connection.execute(f"DELETE FROM predictions WHERE run IN ({again})", (ensemble,))


def write_examples(connection: sqlite3.Connection, examples: Iterable[Example]) -> None:
    """Record examples; those that are there stay."""
    connection.executemany("INSERT OR IGNORE INTO examples VALUES (?, ?, ?)", examples)


def read_examples(connection: sqlite3.Connection) -> list[Example]:
    """All examples."""
    rows = connection.execute("SELECT example, image, truth FROM examples ORDER BY rowid")
    return [Example(*row) for row in rows]


def read_confusions(connection: sqlite3.Connection, part: str) -> dict[str, Matrix]:
    """Confusion matrices of all runs on one set, by run."""
    rows = connection.execute("SELECT run, counts FROM confusions WHERE part = ?", (part,))
    return {run: json.loads(counts) for run, counts in rows}


def read_pictures(connection: sqlite3.Connection, run: str) -> dict[str, bytes]:
    """What a run made of the examples, as gray PNGs of labels."""
    return dict(connection.execute("SELECT example, labels FROM predictions WHERE run = ?", (run,)))
