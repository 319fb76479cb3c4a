"""The tables of a records file, and how to tell one from any other file."""

import sqlite3
from pathlib import Path

from symoptim.errors import RecordsError

APPLICATION = 0x53594D4F  # "SYMO", in SQLite's own field for whose file it is
VERSION = 2
"""Of the tables below; a change of them raises it and adds a migration."""

TABLES = """
CREATE TABLE experiment (              -- one row: what was asked for
    name TEXT NOT NULL,
    configuration TEXT NOT NULL,       -- JSON
    code TEXT NOT NULL,                -- digest of the code that trains
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
    diverged INTEGER,
    seconds REAL                       -- NULL for runs that trained together
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

SCENE_TABLES = """
CREATE TABLE confusions (              -- of a run on scenes that has ended
    run TEXT NOT NULL REFERENCES runs,
    part TEXT NOT NULL,                -- train, validation, test
    counts TEXT NOT NULL,              -- JSON: pixels by true class, then by predicted class
    PRIMARY KEY (run, part)
) WITHOUT ROWID;
CREATE TABLE examples (                -- scenes to look at
    example TEXT PRIMARY KEY,
    image BLOB NOT NULL,               -- JPEG
    truth BLOB NOT NULL                -- gray PNG of labels
);
CREATE TABLE predictions (             -- what a run that has ended made of them
    run TEXT NOT NULL REFERENCES runs,
    example TEXT NOT NULL REFERENCES examples,
    labels BLOB NOT NULL,              -- gray PNG
    PRIMARY KEY (run, example)
);
"""

MIGRATIONS = {1: f"ALTER TABLE runs ADD COLUMN seconds REAL; {SCENE_TABLES}"}
"""What brings tables of a version to the next one."""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, all or none."""
    connection.executescript(
        f"BEGIN; {TABLES} {SCENE_TABLES} PRAGMA application_id = {APPLICATION}; "
        f"PRAGMA user_version = {VERSION}; COMMIT;"
    )


def version_of(connection: sqlite3.Connection) -> int:
    """Version of the tables of a file."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables of an older version up to date, step by step, each all or nothing."""
    while (version := version_of(connection)) < VERSION:
        connection.executescript(f"BEGIN; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is damaged, not of this package, or of tables this one knows nothing of."""
    (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if damage != "ok":
        raise RecordsError(f"{path} is damaged ({damage}): move it away and start anew")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        raise RecordsError(f"{path} is an SQLite file, but none of symoptim's records: choose another --out")
    version = version_of(connection)
    if version != VERSION and version not in MIGRATIONS:
        raise RecordsError(
            f"{path} was written by another symoptim (tables of version {version}, this one has {VERSION}): "
            "use that version, or choose another --out"
        )


def open_file(path: Path) -> sqlite3.Connection:
    """Connect to a records file, making it if there is none."""
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
    """Whether the file has no tables: it is new, or the process that made it was killed before it had any."""
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
