"""What was measured, as JSON lines that are only ever added to; read without torch.

A line of kind ``session`` says where the lines after it come from: machine, code, versions, command. A line
of kind ``step`` has the figures of one contestant on one case, or why there are none.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from symoptim.errors import RecordsError

Line = dict[str, Any]

FAMILIES = ("sgd", "adamw", "geoopt", "sgdp", "oblique", "sm", "un", "full")
"""Contestants as tables have them, without the way they step."""
REFERENCE = "sgd-fused"
"""Whom the others are compared with."""

IDENTITY = ("machine", "device", "threads", "torch", "code")
"""What of a session decides its figures; lines of equal identity need not be measured again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A contestant on a case, with where that was."""

    session: Line
    line: Line
    reference: float | None = None
    """Median of fused SGD, which took turns with it."""

    @property
    def ratio(self) -> float | None:
        """Median as a multiple of fused SGD's in the same turns; None where one of them is missing."""
        if self.seconds is None or self.reference is None:
            return None
        return self.seconds / self.reference

    @property
    def place(self) -> tuple[object, ...]:
        """Machine, device, threads, version of torch and precision: figures of one place can be compared."""
        return (*(self.session[key] for key in IDENTITY[:-1]), self.line["dtype"])

    @property
    def key(self) -> tuple[object, ...]:
        """What the figures are of: a later line of the same key replaces an earlier one."""
        return (*self.place, self.line["case"], self.line["momentum"], self.line["contestant"])

    @property
    def seconds(self) -> float | None:
        """Median, if it was measured."""
        quantiles = self.line.get("seconds")
        return None if quantiles is None else quantiles["p50"]


class Journal:
    """A file of lines that is being added to."""

    def __init__(self, path: Path, session: Line) -> None:
        """Go on with a file, or begin it.

        Args:
            path: of the file; it and its folder are made if need be.
            session: where new lines come from.

        Raises:
            RecordsError: the file is something else, or cannot be written, which is better known before
                anything is measured.
        """
        self.path, self.session, self._begun = path, session, False
        identity = [session[key] for key in IDENTITY]
        known = read_steps([path]) if path.exists() and not _is_new(path) else []
        ours = [step for step in known if [step.session[key] for key in IDENTITY] == identity]
        self.done = {step.key for step in ours if step.seconds is not None or "refused" in step.line}
        self.named = {step.key for step in ours}
        """What is done, and who was missing."""
        self._append("")

    def has(self, line: Line) -> bool:
        """Whether the contestant of a line was on its case before, on this machine with this code."""
        return Step(session=self.session, line=line).key in self.done

    def names(self, line: Line) -> bool:
        """Whether it has anything on the contestant of a line on its case, be it that he was missing."""
        return Step(session=self.session, line=line).key in self.named

    def add(self, lines: Iterable[Line]) -> None:
        """Write lines of kind ``step`` at once.

        Args:
            lines: without their kind and session.

        Raises:
            RecordsError: the file cannot be written.
        """
        listed = [{"kind": "step", "session": self.session["session"], **line} for line in lines]
        if not self._begun:
            listed.insert(0, {"kind": "session", **self.session})
        self._append("".join(json.dumps(line) + "\n" for line in listed))
        self._begun = True

    def _append(self, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            before = self.path.read_bytes() if self.path.exists() else b""
            torn = before != b"" and not before.endswith(b"\n")  # by a process that was killed
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * (torn and text != "") + text)
        except OSError as error:
            raise RecordsError(
                f"{self.path} cannot be written ({error.strerror}): choose another --out"
            ) from error


def read_steps(paths: Sequence[Path]) -> list[Step]:
    """All steps of some files, the last of each key only.

    Args:
        paths: files of JSON lines.

    Returns:
        The steps, rivals first, whenever they were measured.

    Raises:
        RecordsError: a file is not there, or something else.
    """
    steps: dict[tuple[object, ...], Step] = {}
    for path in paths:
        lines = _lines(path)
        sessions = {line["session"]: line for line in lines if line.get("kind") == "session"}
        if not sessions:
            raise RecordsError(f"{path} has no records of symoptim bench: name another file")
        measured = [line for line in lines if line.get("kind") == "step" and line.get("session") in sessions]
        medians = {
            _turns_of(line): line["seconds"]["p50"]
            for line in measured
            if line["contestant"] == REFERENCE and "seconds" in line
        }
        for line in measured:
            session, reference = sessions[line["session"]], medians.get(_turns_of(line))
            step = Step(session=session, line=line, reference=reference)
            steps[step.key] = step  # at the place of an earlier one, so that pages keep their order
    return sorted(steps.values(), key=lambda step: _rank(step.line["contestant"]))


def _rank(contestant: str) -> tuple[int, bool]:
    """Place of a contestant in tables; what is fused goes before its relatives, who is not known to the end.

    >>> sorted(["un-reference", "un-fused", "sgd-foreach", "sgd-fused"], key=_rank)
    ['sgd-fused', 'sgd-foreach', 'un-fused', 'un-reference']
    """
    family, _, way = contestant.partition("-")
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), way != "fused"


def _turns_of(line: Line) -> tuple[object, ...]:
    """What those have in common who took turns."""
    return tuple(line[key] for key in ("session", "case", "momentum", "dtype"))


def _is_new(path: Path) -> bool:
    """Whether a file was made, and then nothing was measured."""
    return path.is_file() and path.stat().st_size == 0


def _lines(path: Path) -> list[Line]:
    """Lines of a file; one that was cut off when its process was killed is left out."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise RecordsError(f"{path} cannot be read ({error.strerror}): name another file") from error
    found: list[Line] = []
    for text in texts:
        try:
            line: Any = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(cast("Line", line))
    return found
