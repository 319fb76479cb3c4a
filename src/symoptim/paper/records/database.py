"""A records file, open for writing: its experiment, its sessions, and transactions with clear errors.

Everything that belongs together is written in one transaction, so a process that is killed leaves the
file as it was after its last complete one.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, cast

from symoptim.errors import RecordsError
from symoptim.paper.records.schema import migrate, open_file
from symoptim.support.files import require_folder
from symoptim.support.lock import Lock
from symoptim.support.provenance import code_digest, command_line, describe_process, now

Plain = Mapping[str, object]
"""Plain data to be written."""
Json = dict[str, Any]
"""Plain data that were read."""


class Circumstances(NamedTuple):
    """What an unfinished experiment has to be taken up with, for the same numbers to come out."""

    code: str
    torch: str
    device: str


class Records:
    """A records file this process may write to; use it in a ``with`` statement."""

    def __init__(self, path: Path, *, torch: str, device: str, code: str | None = None) -> None:
        """Open the file, or make it; ``code`` is a digest of what trains, by default of the whole package."""
        self.path = path
        self.circumstances = Circumstances(code or code_digest(), torch, device)
        self.begun = time.monotonic()
        self.session: int | None = None
        """Number of this process in the records; from :meth:`begin` on, and only while there is work left."""
        with self.explained():
            require_folder(path.parent)
            self.lock = Lock(path)
            try:
                self.connection = open_file(path)
            except BaseException:
                self.lock.release()
                raise

    def __enter__(self) -> "Records":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Back to one file instead of three, unless another process is reading it.
        with contextlib.suppress(sqlite3.OperationalError):
            self.connection.execute("PRAGMA journal_mode = DELETE")
        self.connection.close()
        self.lock.release()

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """A transaction of an experiment that has begun: all of it is recorded, or nothing."""
        with self.explained(), self.connection as connection:
            yield connection
            connection.execute(
                "UPDATE sessions SET seconds = ? WHERE session = ?",
                (time.monotonic() - self.begun, self.session),
            )

    @contextmanager
    def explained(self) -> Generator[None]:
        """Turn errors of the disk and of SQLite into one that gives the way out."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._cannot_write(str(error)) from error
        except sqlite3.IntegrityError:
            raise  # a bug of the caller; the file is as it was
        except sqlite3.DatabaseError as error:
            raise RecordsError(
                f"{self.path} is damaged, or no records file ({error}): move it away, or choose another --out"
            ) from error
        except OSError as error:
            raise self._cannot_write(error.strerror or str(error)) from error

    def _cannot_write(self, cause: str) -> RecordsError:
        return RecordsError(
            f"{self.path} cannot be written ({cause}). What was recorded before is safe: make room, or "
            "choose a place that can be written to, and run the same command again"
        )

    def begin(self, name: str, configuration: Plain) -> bool:
        """Begin or take up an experiment; a file of another one is refused.

        Returns whether there is work left: a finished experiment is for reading only.
        """
        with self.explained():
            row = self.connection.execute("SELECT * FROM experiment").fetchone()
        if row is not None:
            self._require_same(row, name, configuration)
            if row[-1] is not None:
                return False
        with self.explained():
            migrate(self.connection)  # not before: a refusal leaves the file as it was
        with self.writing() as connection:
            if row is None:
                connection.execute(
                    "INSERT INTO experiment VALUES (?, ?, ?, ?, ?, NULL)",
                    (name, json.dumps(configuration), *self.circumstances),
                )
            cursor = connection.execute(
                "INSERT INTO sessions (begun, command, provenance) VALUES (?, ?, ?)",
                (now(), command_line(), describe_process()),
            )
            self.session = cursor.lastrowid
        return True

    def _require_same(self, row: tuple[str, ...], name: str, configuration: Plain) -> None:
        """Refuse to mix experiments, or circumstances within an unfinished one."""
        recorded_name, recorded, *circumstances, finished = row
        difference = _difference(
            {"experiment": recorded_name, **json.loads(recorded)}, {"experiment": name, **configuration}
        )
        if difference:
            raise RecordsError(
                f"{self.path} was made with {difference[0]}, you asked for {difference[1]}: ask for the "
                "same, or choose another --out"
            )
        difference = _difference(Circumstances(*circumstances)._asdict(), self.circumstances._asdict())
        if difference and not finished:
            raise RecordsError(
                f"{self.path} is unfinished and was begun with {difference[0]}; this is {difference[1]}, and "
                "results would mix: go on with the former, or start anew with another --out"
            )

    def finish(self) -> None:
        """Mark the experiment as finished, and free the space of its checkpoints."""
        with self.writing() as connection:
            connection.execute("UPDATE experiment SET finished = ?", (now(),))
        with self.explained():
            self.connection.execute("PRAGMA incremental_vacuum").fetchall()


def _difference(recorded: Plain, asked: Plain) -> tuple[str, str] | None:
    """First option two configurations differ in, with the value of each, for a message."""
    one = dict(_options(recorded))
    other = dict(_options(json.loads(json.dumps(asked))))  # as it would come back: tuples are lists
    for path in dict.fromkeys([*one, *other]):
        if one.get(path) != other.get(path):
            return f"{path[-1]} {one.get(path)}", f"{path[-1]} {other.get(path)}"
    return None


def _options(plain: Plain, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Options by the names that lead to them; lists as one would type them."""
    for name, value in plain.items():
        if isinstance(value, dict):
            yield from _options(cast("dict[str, object]", value), (*path, name))
        elif isinstance(value, list):
            yield (*path, name), ", ".join(map(str, cast("list[object]", value)))
        else:
            yield (*path, name), str(value)
