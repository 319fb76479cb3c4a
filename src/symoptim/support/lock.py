"""One writer per records file. The lock goes with its process, however that ends.

A second little SQLite file is kept in an exclusive transaction: SQLite knows how to lock on every platform,
and the operating system drops the lock of a process that is killed. Who holds it is written next to it.
"""

import json
import os
import platform
import sqlite3
from pathlib import Path

from symoptim.errors import RecordsError
from symoptim.support.provenance import command_line, now


class Lock:
    """Held from construction until :meth:`release`, or until the process ends."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the records file ``path``."""
        self.holder = path.with_name(f".{path.name}.holder")
        beside = path.with_name(f".{path.name}.lock")
        self.connection = sqlite3.connect(beside, timeout=0, isolation_level=None)
        try:
            self.connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self.connection.close()
            if "locked" not in str(error):
                raise
            raise RecordsError(
                f"{path} is in use by {self._who()}; wait for it to end, stop it, or choose another --out"
            ) from error
        try:
            self._sign()
        except BaseException:
            self.connection.close()
            raise

    def _sign(self) -> None:
        """Write down who holds the lock, in one step."""
        about = {"process": os.getpid(), "host": platform.node(), "since": now(), "command": command_line()}
        half = self.holder.with_suffix(".part")
        half.write_text(json.dumps(about))
        half.replace(self.holder)

    def _who(self) -> str:
        """The holder, as well as it is known: it may be writing its name at this moment."""
        try:
            about = json.loads(self.holder.read_text())
        except (OSError, ValueError):
            return "another process"
        return f"process {about['process']} on {about['host']} since {about['since']} ({about['command']})"

    def release(self) -> None:
        """Let others in."""
        self.holder.unlink(missing_ok=True)
        self.connection.close()
