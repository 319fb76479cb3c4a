"""What was measured, as JSON lines that are only ever added to; read without torch.

A line of kind ``session`` says where the lines after it come from: machine, code, versions, command. A line
of kind ``step`` has the figures of one optimizer on one case, or why there are none.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from symoptim.errors import RecordsError

Line = dict[str, Any]

FAMILIES = ("sgd", "adamw", "geoopt", "sgdp", "oblique", "sm", "un", "full", "invariant")
"""First words of optimizers' names, in the order of the tables."""
REFERENCE = "sgd-fused"
"""What the others are compared with."""

IDENTITY = ("machine", "device", "threads", "torch", "code")
"""What of a session decides its figures; lines of equal identity need not be measured again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """An optimizer on a case, with where that was measured."""

    session: Line
    line: Line
    reference: float | None = None
    """Median of fused SGD in the same turns."""

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
        """Go on with a file, or begin it; it and its folder are made if need be.

        Raises:
            RecordsError: the file is something else, or cannot be written: this is checked before anything
                is measured.
        """
        self.path, self.session, self._begun = path, session, False
        identity = [session[key] for key in IDENTITY]
        is_new = not path.exists() or (path.is_file() and path.stat().st_size == 0)
        known = [] if is_new else read_steps([path])
        ours = [step for step in known if [step.session[key] for key in IDENTITY] == identity]
        self.done = {step.key for step in ours if step.seconds is not None or "refused" in step.line}
        self.named = {step.key for step in ours}
        """What is done, and what was missing."""
        append(path, "")

    def has(self, line: Line) -> bool:
        """Whether a line's optimizer was measured on its case before, on this machine with this code."""
        return Step(session=self.session, line=line).key in self.done

    def names(self, line: Line) -> bool:
        """Whether there is a line about its optimizer and case, if only that it was missing."""
        return Step(session=self.session, line=line).key in self.named

    def add(self, lines: Iterable[Line], kind: str = "step") -> None:
        """Write lines at once, without their kind and session, behind the line of the session.

        Raises:
            RecordsError: the file cannot be written.
        """
        listed = [{"kind": kind, "session": self.session["session"], **line} for line in lines]
        if not self._begun:
            listed.insert(0, {"kind": "session", **self.session})
        append(self.path, "".join(json.dumps(line) + "\n" for line in listed))
        self._begun = True


def append(path: Path, text: str) -> None:
    """Add text to a file; a line that a killed process has left unfinished is ended first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        torn = before != b"" and not before.endswith(b"\n")
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" * (torn and text != "") + text)
    except OSError as error:
        raise RecordsError(f"{path} cannot be written ({error.strerror}): choose another --out") from error


def read_steps(paths: Sequence[Path]) -> list[Step]:
    """All steps of some files, the last of each key only, in the order of :data:`FAMILIES`.

    Raises:
        RecordsError: a file is not there, or something else.
    """
    steps: dict[tuple[object, ...], Step] = {}
    for path in paths:
        lines = read_lines(path)
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
            steps[step.key] = step  # in the place of an earlier one, so that pages keep their order
    return sorted(steps.values(), key=lambda step: _rank(step.line["contestant"]))


def only(steps: Sequence[Step], cases: Sequence[str] | None, contestants: Sequence[str] | None) -> list[Step]:
    """Steps of some cases and optimizers, and of the one these are compared with."""
    return [
        step
        for step in steps
        if (cases is None or step.line["case"] in cases)
        and (contestants is None or step.line["contestant"] in {REFERENCE, *contestants})
    ]


def read_lines(path: Path) -> list[Line]:
    """Lines of a file; one that was cut off when its process was killed is left out.

    Raises:
        RecordsError: the file cannot be read.
    """
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


def _rank(contestant: str) -> tuple[int, bool]:
    """Place of an optimizer in tables; what is fused goes before its relatives, unknown ones to the end.

    >>> sorted(["un-reference", "un-fused", "sgd-foreach", "sgd-fused"], key=_rank)
    ['sgd-fused', 'sgd-foreach', 'un-fused', 'un-reference']
    """
    family, _, way = contestant.partition("-")
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), way != "fused"


def _turns_of(line: Line) -> tuple[object, ...]:
    """What those have in common that took turns."""
    return tuple(line[key] for key in ("session", "case", "momentum", "dtype"))
