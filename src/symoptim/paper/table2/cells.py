"""Table 2 from the records: mean and standard deviation of the test error, cell by cell, beside the paper's.

The test error of a run is the one after its last epoch. Runs that diverged are left out of the mean and
counted; runs that have not ended are counted as missing. Standard deviations are the sample's (n - 1).
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from symoptim.paper.records.runs import RecordedExperiment, RecordedRun
from symoptim.paper.report.statistics import mean_interval
from symoptim.paper.table2.published import TABLE2, Key, Printed
from symoptim.support.files import csv_text

SCHEDULES = {"exponential": "exp. decay", "bold": "bold driver"}
ARCHITECTURES = {"arch1": "Arch1", "arch2": "Arch2"}


class Cell(NamedTuple):
    """One cell: the test errors of its runs that did not diverge, and what else there is to know."""

    key: Key
    title: str
    errors: tuple[float, ...]
    diverged: int
    missing: int
    paper: Printed | None

    @property
    def mean(self) -> float:
        """Mean test error; NaN without runs."""
        return statistics.fmean(self.errors) if self.errors else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample; NaN of fewer than two runs."""
        return statistics.stdev(self.errors) if len(self.errors) > 1 else math.nan

    @property
    def remarks(self) -> str:
        """What is to be known about the runs, if anything."""
        remarks = [f"{self.diverged} diverged"] if self.diverged else []
        return ", ".join(remarks + ([f"{self.missing} missing"] if self.missing else []))

    @property
    def text(self) -> str:
        """Mean and deviation as the paper prints them, and the remarks."""
        return pair_text(self.mean, self.deviation) + (f" ({self.remarks})" if self.remarks else "")


def pair_text(mean: float, deviation: float) -> str:
    """As the paper prints it.

    >>> pair_text(0.02634, 0.0079), pair_text(0.5, math.nan)
    ('.0263 ±.0079', '.5000')
    """
    if math.isnan(mean):
        return "-"
    first = f"{mean:.4f}".removeprefix("0")
    return first if math.isnan(deviation) else f"{first} ±{f'{deviation:.4f}'.removeprefix('0')}"


def cells(experiment: RecordedExperiment, runs: Iterable[RecordedRun]) -> list[Cell]:
    """All cells the experiment asks for, in the order of the paper's table."""
    config = experiment.configuration["protocol"]
    by_key: dict[Key, list[RecordedRun]] = {}
    for run in runs:
        labels = run.labels
        key = Key(labels["depth"], labels["schedule"], labels["architecture"], labels["update"])
        by_key.setdefault(key, []).append(run)
    on_mnist = experiment.configuration["data"] == "mnist"
    return [
        _cell(
            key,
            experiment.configuration["titles"][update],
            by_key.get(key, []),
            config["repeats"],
            TABLE2.get(key) if on_mnist else None,
        )
        for depth in config["depths"]
        for schedule in config["schedules"]
        for architecture in config["architectures"]
        for update in config["updates"]
        for key in [Key(depth, schedule, architecture, update)]
    ]


def _cell(key: Key, title: str, runs: Sequence[RecordedRun], repeats: int, paper: Printed | None) -> Cell:
    ended = [run for run in runs if run.has_ended]
    return Cell(
        key,
        title,
        errors=tuple(run.curve[-1].test_error for run in ended if not run.diverged),
        diverged=sum(run.diverged for run in ended),
        missing=repeats - len(ended),
        paper=paper,
    )


def rows_of(cells: Sequence[Cell]) -> dict[tuple[int, str], list[Cell]]:
    """Cells by depth and schedule: the rows of the paper's table."""
    rows: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.key.depth, cell.key.schedule), []).append(cell)
    return rows


class Line(NamedTuple):
    """A line of the table as it is shown: a title, whether it is the paper's, and a text for every column."""

    title: str
    is_paper: bool
    texts: tuple[str, ...]


def headings(cells: Sequence[Cell]) -> list[str]:
    """Titles of the columns."""
    titles = {(cell.key.architecture, cell.key.update): cell.title for cell in cells}
    return [f"{ARCHITECTURES[architecture]} {title}" for (architecture, _), title in titles.items()]


def lines(cells: Sequence[Cell]) -> list[Line]:
    """The table line by line, ours and then the paper's where it has one."""
    shown: list[Line] = []
    for (depth, schedule), row in rows_of(cells).items():
        title = f"{depth} layers, {SCHEDULES[schedule]}"
        shown.append(Line(title, False, tuple(cell.text for cell in row)))
        if any(cell.paper for cell in row):
            printed = tuple(pair_text(*cell.paper) if cell.paper else "" for cell in row)
            shown.append(Line("the paper", True, printed))
    return shown


def as_markdown(cells: Sequence[Cell]) -> str:
    """The table in Markdown, the paper's lines in italics."""
    columns = headings(cells)
    text = [f"| test error | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for line in lines(cells):
        texts = [f"*{t}*" if line.is_paper and t else t for t in (line.title, *line.texts)]
        text.append(f"| {' | '.join(texts)} |")
    return "\n".join(text) + "\n"


def as_csv(cells: Sequence[Cell]) -> str:
    """One line per cell, with all digits and Student's 95 % interval of the mean."""
    numbers = ["mean", "deviation", "low", "high", "runs", "diverged", "missing"]
    return csv_text(
        [*Key._fields, *numbers, "paper_mean", "paper_deviation"],
        [
            [
                *cell.key,
                cell.mean,
                cell.deviation,
                *mean_interval(cell.errors),
                len(cell.errors),
                cell.diverged,
                cell.missing,
                *(cell.paper or ("", "")),
            ]
            for cell in cells
        ],
    )
