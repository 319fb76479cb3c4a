"""The tables of a records file, and how to tell one from any other file."""

import sqlite3
from pathlib import Path

from symoptim.errors import RecordsError

APPLICATION = 0x53594D4F  # "SYMO", in SQLite's own field for whose file it is
VERSION = 1
"""Of the tables below; to be raised, with a migration, by whoever changes them."""

TABLES = """
CREATE TABLE experiment (              -- one row: what was asked for
    name TEXT NOT NULL,
    configuration TEXT NOT NULL,       -- JSON
    code TEXT NOT NULL,                -- digest of the package's own files
    torch TEXT NOT NULL,
    device TEXT NOT NULL,
    finished TEXT                      -- UTC; NULL until all runs have ended
);
CREATE TABLE sessions (                -- every process that worked on it
    session INTEGER PRIMARY KEY,
    begun TEXT NOT NULL,               -- UTC
    seconds REAL NOT NULL DEFAULT 0,   -- until its last write
    command TEXT NOT NULL,
    provenance TEXT NOT NULL           -- JSON: commit, versions, machine, process
);
CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    ensemble TEXT NOT NULL,            -- runs that were trained together
    labels TEXT NOT NULL,              -- JSON: phase, architecture, depth, update, schedule, repeat
    configuration TEXT NOT NULL,       -- JSON: rate, seed, sizes, rules
    session INTEGER REFERENCES sessions,
    epochs INTEGER,                    -- with all that follows, NULL until the run has ended
    reason TEXT,
    diverged INTEGER
);
CREATE TABLE epochs (                  -- NULL stands for NaN, or for what was not measured
    run TEXT NOT NULL REFERENCES runs,
    epoch INTEGER NOT NULL,
    rate REAL,
    loss REAL,
    train_error REAL,
    validation_error REAL,
    test_error REAL,
    PRIMARY KEY (run, epoch)
) WITHOUT ROWID;
CREATE TABLE checkpoints (             -- where an unfinished ensemble can be taken up
    ensemble TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    state BLOB NOT NULL
);
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, all or none."""
    connection.executescript(
        f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    )


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is damaged, not of this package, or of another version of its tables.

    Args:
        connection: of the open file.
        path: its name, for messages.

    Raises:
        RecordsError: says which of these it is.
    """
    (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if damage != "ok":
        raise RecordsError(f"{path} is damaged ({damage}): move it away and start anew")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        raise RecordsError(f"{path} is an SQLite file, but none of symoptim's records: choose another --out")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        whose = "a newer" if version > VERSION else "an older"
        raise RecordsError(
            f"{path} was written by {whose} symoptim (tables of version {version}, this one has {VERSION}): "
            "use that version, or choose another --out"
        )


def open_file(path: Path) -> sqlite3.Connection:
    """Connect to a records file, making it if there is none.

    Args:
        path: the file.

    Returns:
        A connection in WAL mode: readers do not wait for the writer, nor it for them.
    """
    connection = sqlite3.connect(path, timeout=10)
    try:
        if is_empty(connection):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # checkpoints leave big holes
            connection.execute("PRAGMA journal_mode = WAL")
            create(connection)
        require_ours(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file has no tables: it is new, or whoever made it was killed before it had any."""
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
