"""``symoptim report``: the page, from the records alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from typer import Argument

from symoptim.cli.tables import table2_table, verdicts_table
from symoptim.report.summary import Summary
from symoptim.report.write import write_report


def report(
    folder: Annotated[Path, Argument(metavar="OUT", help="Folder with the records of symoptim reproduce.")],
) -> None:
    """Judge the paper's claims by recorded runs and write a page about them; trains nothing."""
    show_report(folder, table2_table)


def show_report(folder: Path, show: Callable[[Summary], Table]) -> None:
    """Write a folder's report, print one view of it and the verdicts, and say where the page is."""
    summary, judgments, (page, *others) = write_report(folder)
    console = Console()
    console.print(show(summary))
    console.print(verdicts_table(judgments, quick=summary.experiment.configuration["profile"] == "quick"))
    tell_written(console, others)
    console.print(f"the page, to open in a browser: {page}", highlight=False, markup=False, soft_wrap=True)


def tell_written(console: Console, paths: Sequence[Path]) -> None:
    """Say where results are."""
    for path in paths:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
