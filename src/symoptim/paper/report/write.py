"""All files of a report, written from the records alone."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from symoptim.errors import RecordsError
from symoptim.paper.records.runs import reading, require_experiment
from symoptim.paper.segnet import tables
from symoptim.paper.segnet.report import render_scenes
from symoptim.paper.segnet.summary import SceneSummary, summarize_scenes
from symoptim.paper.table2 import cells as table2
from symoptim.paper.table2 import judge as claims_table
from symoptim.paper.table2 import trajectories
from symoptim.paper.table2.judge import Judgment
from symoptim.paper.table2.report import judge_summary, render
from symoptim.paper.table2.summary import Summary, provenance, provenance_list, summarize
from symoptim.support.files import write_files

RECORDS = "records.sqlite"
PAGE = "report.html"


class MnistReport(NamedTuple):
    """What the records say, the verdicts, and the files, the page first."""

    summary: Summary
    judgments: list[Judgment]
    paths: list[Path]


class SegNetReport(NamedTuple):
    """What the records say, and the files, the page first."""

    summary: SceneSummary
    paths: list[Path]


Told = Callable[[Summary], None]
"""Hears what the records of MNIST say before anything is judged or drawn, which takes seconds."""


def write_report(folder: Path, told: Told | None = None) -> MnistReport | SegNetReport:
    """Read a folder's records and write the page, its figures, Markdown and CSV.

    Args:
        folder: where the records are, and where the files go.
        told: hears of what comes out as soon as it is known.

    Returns:
        What came out, by kind of experiment.

    Raises:
        RecordsError: there are no records, or they are of an experiment this version does not know.
    """
    match experiment_name(folder):
        case "mnist":
            return write_mnist(folder, told)
        case "segnet":
            return write_segnet(folder)
        case other:
            raise RecordsError(f"{folder} has records of '{other}', which there is no report about")


def experiment_name(folder: Path) -> str:
    """Name of the experiment whose records a folder has."""
    with reading(folder / RECORDS) as connection:
        return require_experiment(connection, folder / RECORDS).name


def write_mnist(folder: Path, told: Told | None) -> MnistReport:
    """Judge the claims, and write all about them."""
    summary = summarize(folder / RECORDS)
    if told is not None:
        told(summary)
    judgments = judge_summary(summary)
    texts = {
        PAGE: render(summary, judgments, folder),
        "table2.md": table2.as_markdown(summary.cells) + "\n" + provenance(summary.experiment),
        "table2.csv": table2.as_csv(summary.cells),
        "trajectories.csv": trajectories.as_csv(summary.panels),
        "claims.md": claims_table.as_markdown(judgments),
        "claims.csv": claims_table.as_csv(judgments),
    }
    return MnistReport(summary, judgments, write_files(folder, texts))


def write_segnet(folder: Path) -> SegNetReport:
    """Write scores and pictures."""
    summary = summarize_scenes(folder / RECORDS)
    sensitivity = f"\n{tables.rates_markdown(summary)}" if summary.search else ""
    texts = {
        PAGE: render_scenes(summary, folder),
        "scores.md": tables.scores_markdown(summary)
        + sensitivity
        + f"\n{provenance_list(summary.experiment)}",
        "scores.csv": tables.scores_csv(summary),
        **({"curves.csv": tables.curves_csv(summary)} if summary.trained else {}),
        **({"sensitivity.csv": tables.rates_csv(summary)} if summary.search else {}),
    }
    return SegNetReport(summary, write_files(folder, texts))
