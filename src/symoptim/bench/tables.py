"""Records as tables: times, shares, memory, and what is missing or not to be trusted. No torch is needed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from symoptim.bench.records import REFERENCE, Line, Step
from symoptim.errors import RecordsError
from symoptim.support.files import write_files

MEMORY_CASES = ("resnet50", "segnet", "gpt2", "tiny")
"""The case whose memory is shown is the first of these that there is, or the first there is."""
TRUSTED = 0.8
"""Steps of fused SGD are down to 0.9 of the floor on a CPU that does nothing else."""
_WRITTEN = "Written by `symoptim bench"


class Table(NamedTuple):
    """A table as text, and notes below it."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def places(steps: Sequence[Step]) -> dict[tuple[object, ...], list[Step]]:
    """Steps by the place their figures are from."""
    found: dict[tuple[object, ...], list[Step]] = {}
    for step in steps:
        found.setdefault(step.place, []).append(step)
    return found


def tables(steps: Sequence[Step]) -> list[Table]:
    """All tables of one place: times for every momentum, then shares and memory."""
    momenta = sorted({step.line["momentum"] for step in steps})
    timed = [_times([s for s in steps if s.line["momentum"] == momentum], momentum) for momentum in momenta]
    last = [step for step in steps if step.line["momentum"] == momenta[-1]]
    shares = [_host_and_device(last, momenta[-1])] if any("device" in step.line for step in last) else []
    if any("passes" in step.line and step.seconds is not None for step in last):
        shares.append(_training(last, momenta[-1]))
    memory = _memory(last, momenta[-1])._replace(notes=[*_absences(steps), *_disturbances(steps)])
    return [*timed, *shares, memory]


def describe(steps: Sequence[Step]) -> str:
    """Where figures are from, in a line."""
    session, line = steps[0].session, steps[0].line
    clock = next((step.line["clock"] for step in steps if "clock" in step.line), "nothing measured")
    return f"{session['machine']}, torch {session['torch']}, {line['dtype']}, {clock}"


def markdown(table: Table) -> str:
    """A table as Markdown.

    >>> print(markdown(Table("Times", ["", "a"], [["SGD", "1.0"]], ["b: none"])))
    **Times**
    <BLANKLINE>
    | | a |
    |---|---|
    | SGD | 1.0 |
    <BLANKLINE>
    b: none
    """
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    joined = [
        "|" + "|".join(cell if cell == "---" else f" {cell} ".replace("  ", " ") for cell in line) + "|"
        for line in lines
    ]
    notes = [text for note in table.notes for text in ("", note)]
    return "\n".join([f"**{table.title}**", "", *joined, *notes])


def page_beside(records: Path) -> Path:
    """File of the tables that go beside records.

    Raises:
        RecordsError: the records have that name, or there is such a file that is no page of tables.
    """
    if records.suffix == ".md":
        better = records.with_suffix(".jsonl")
        raise RecordsError(f"{records} cannot have records, the tables have its name: say {better}")
    page = records.with_suffix(".md")
    if page.exists() and not (page.is_file() and _WRITTEN in page.read_text("utf-8", errors="replace")):
        raise RecordsError(f"{page} has no tables of symoptim bench: choose another --out")
    return page


def write_page(steps: Sequence[Step], page: Path) -> list[Path]:
    """Write all tables as Markdown."""
    texts = ["# What a step costs", f"{_WRITTEN}`."]
    for mine in places(steps).values():
        texts += [f"## {describe(mine)}", *map(markdown, tables(mine))]
    return write_files(page.parent, {page.name: "\n\n".join(texts) + "\n"})


def milliseconds(seconds: float) -> str:
    """Milliseconds to three digits.

    >>> milliseconds(0.012345), milliseconds(12.345), milliseconds(1.2345e-5)
    ('12.3', '12,300', '0.0123')
    """
    return f"{float(f'{1e3 * seconds:.3g}'):,g}"


def titles_of(steps: Sequence[Step], key: str, title: str) -> dict[str, str]:
    """Titles by name, in order of appearance."""
    return {step.line[key]: step.line[title] for step in steps}


def _times(steps: list[Step], momentum: float) -> Table:
    cases = titles_of(steps, "case", "case_title")
    by = {(step.line["contestant"], step.line["case"]): step for step in steps}
    floors = {s.line["case"]: s.line["floor"] for s in reversed(steps) if "floor" in s.line}  # of the first
    elsewhere = {key for key, step in by.items() if _is_elsewhere(step, by.get((REFERENCE, key[1])))}

    def cell(step: Step) -> str:
        if step.seconds is None:
            return ""
        times, floors = step.ratio, step.seconds / step.line["floor"]
        mark = "*" * ((step.line["contestant"], step.line["case"]) in elsewhere)
        ratio = "-" if times is None else f"{times:.2f}"
        return f"{milliseconds(step.seconds)} ({ratio}; {floors:.1f}){mark}"

    floor = ["floor", *(milliseconds(floors[case]) if case in floors else "-" for case in cases)]
    heading = "without momentum" if not momentum else f"momentum {momentum:g}"
    title = f"Milliseconds of a step, {heading}; in parentheses, as a multiple of fused SGD and of the floor"
    notes = ["*: of another run, a multiple of its own fused SGD and floor"] if elsewhere else []
    return Table(title, ["", *cases.values()], [floor, *_grid(steps, cell)], notes)


def _is_elsewhere(step: Step, shown: Step | None) -> bool:
    """Whether a step has figures, but did not take turns with the fused SGD that is shown."""
    is_timed = step.seconds is not None
    return is_timed and shown is not None and shown.session["session"] != step.session["session"]


def _host_and_device(steps: list[Step], momentum: float) -> Table:
    """Time of the host and of the device, where both were measured."""

    def cell(step: Step) -> str:
        parts = [step.line[key]["p50"] for key in ("host", "device") if "device" in step.line]
        return ", ".join(map(milliseconds, parts))

    title = (
        f"Milliseconds the host is busy, and the device where the host is ahead of it, momentum {momentum:g}"
    )
    cases = titles_of(steps, "case", "case_title")
    return Table(title, ["", *cases.values()], _grid(steps, cell), [])


def _grid(steps: list[Step], cell: Callable[[Step], str]) -> list[list[str]]:
    """A row for every optimizer with any text, a column for every case."""
    by = {(step.line["contestant"], step.line["case"]): cell(step) for step in steps}
    cases = titles_of(steps, "case", "case_title")
    rows = [
        [title, *(by.get((name, case)) or "-" for case in cases)]
        for name, title in titles_of(steps, "contestant", "title").items()
    ]
    return [row for row in rows if set(row[1:]) != {"-"}]


def _training(steps: list[Step], momentum: float) -> Table:
    """Share of a training step, of models whose forward and backward were timed."""
    timed = [(s.line, s.seconds, s.line["passes"]) for s in steps if "passes" in s.line and s.seconds]
    rows = [
        [line["title"], line["case_title"], milliseconds(passes), f"{seconds / (seconds + passes):.1%}"]
        for line, seconds, passes in timed
    ]
    title = f"Share of a training step, momentum {momentum:g}"
    return Table(title, ["", "model", "forward and backward, ms", "share of the optimizer"], rows, [])


def _absences(steps: Sequence[Step]) -> list[str]:
    """What is missing or was refused and why, and remarks, each once."""
    said: dict[str, set[str]] = {}
    cases = {step.line["case"] for step in steps}
    for step in steps:
        for kind in ("missing", "refused"):
            if kind in step.line:
                words = f"{step.line['title']}: {step.line[kind]}"
                said.setdefault(words, set()).add(step.line["case_title"])
    remarks = {f"{s.line['title']}: {s.line['remark']}": None for s in steps if "remark" in s.line}
    no_passes = {s.line["no_passes"]: None for s in steps if "no_passes" in s.line}
    return [
        *(
            words if len(cases) == len(titles) else f"{words} ({', '.join(sorted(titles))})"
            for words, titles in said.items()
        ),
        *remarks,
        *no_passes,
    ]


def _disturbances(steps: Sequence[Step]) -> list[str]:
    """Cases whose figures are not to be trusted: a step cannot be much faster than the copy of the floor.

    In less than 32 bits that is a copy of float32 masters too, which not every optimizer keeps.
    """
    far = [
        step.line
        for step in steps
        if step.line["dtype"] in ("float32", "float64")
        and step.seconds is not None
        and step.seconds < TRUSTED * step.line["floor"]
    ]
    where = dict.fromkeys(f"{line['case_title']}, momentum {line['momentum']:g}" for line in far)
    reason = "steps far below the floor, so the machine was busy otherwise: measure again"
    return [f"{words}: {reason}" for words in where]


def _memory(steps: list[Step], momentum: float) -> Table:
    """Memory of one case, in units of its weights."""
    cases = titles_of(steps, "case", "case_title")
    case = next((name for name in MEMORY_CASES if name in cases), next(iter(cases)))
    measured = [s.line for s in steps if s.line["case"] == case and "state_bytes" in s.line]
    rows = [_memory_row(line) for line in measured]
    waits = any("synchronizations" in line for line in measured)
    header = ["", "state", "on top during a step", "tensors made", *(["waits"] if waits else [])]
    title = f"Memory on {cases[case]}, momentum {momentum:g}, in units of the weights; tensors made in a step"
    return Table(title + ("; times the host waits for the device" if waits else ""), header, rows, [])


def _memory_row(line: Line) -> list[str]:
    sizes = [f"{line[key] / line['bytes']:.2f}" for key in ("state_bytes", "temporary_bytes")]
    waits = [str(line["synchronizations"])] if "synchronizations" in line else []
    return [line["title"], *sizes, str(line["allocations"]), *waits]
