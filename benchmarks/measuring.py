"""What the benchmarks share: process time of a call, and records in the format of ``symoptim bench``."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from symoptim.bench.records import append
from symoptim.bench.run import session_of

CPU = torch.device("cpu")


def seconds(work: Callable[..., object], *arguments: object) -> float:
    """Process time of a call."""
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


class Log:
    """A file of JSON lines that is added to: one about this process, then lines of a kind."""

    def __init__(self, path: Path, kind: str, device: torch.device = CPU, **more: object) -> None:
        """Begin with the line of this process; it has more entries if need be."""
        self.path, self.kind, self.session = path, kind, session_of(device)
        self._write({"kind": "session", **self.session, **more})

    def add(self, *lines: dict[str, Any]) -> None:
        """Write lines, each with its kind and session."""
        for line in lines:
            self._write({"kind": self.kind, "session": self.session["session"], **line})

    def _write(self, line: dict[str, Any]) -> None:
        append(self.path, json.dumps(line) + "\n")
