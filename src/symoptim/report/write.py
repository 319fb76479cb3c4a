"""All files of a report, written from the records alone."""

from pathlib import Path

from symoptim.records.files import write_files
from symoptim.report import claims_table, table2, trajectories
from symoptim.report.judge import Judgment
from symoptim.report.page import judge_summary, render
from symoptim.report.summary import Summary, provenance, summarize

RECORDS = "records.sqlite"
PAGE = "report.html"


def write_report(folder: Path) -> tuple[Summary, list[Judgment], list[Path]]:
    """Read a folder's records, judge the claims, and write the page, its figures, Markdown and CSV.

    Args:
        folder: where the records are, and where the files go.

    Returns:
        What the records say, the verdicts, and the files, the page first.
    """
    summary = summarize(folder / RECORDS)
    judgments = judge_summary(summary)
    texts = {
        PAGE: render(summary, judgments, folder),
        "table2.md": table2.as_markdown(summary.cells) + "\n" + provenance(summary.experiment),
        "table2.csv": table2.as_csv(summary.cells),
        "trajectories.csv": trajectories.as_csv(summary.panels),
        "claims.md": claims_table.as_markdown(judgments),
        "claims.csv": claims_table.as_csv(judgments),
    }
    return summary, judgments, write_files(folder, texts)
