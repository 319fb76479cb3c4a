"""``symoptim report``: the page, from the records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument

from symoptim.cli.tables import tables_of
from symoptim.paper.registry import write_report
from symoptim.paper.report.html import PAGE, Report


def report(
    folder: Annotated[Path, Argument(metavar="OUT", help="Folder with the records of symoptim reproduce.")],
) -> None:
    """Write a page about recorded runs, the paper's claims judged by them; trains nothing."""
    show_report(write_report(folder))


def show_report(written: Report, *, trajectories: bool = False) -> None:
    """Print a report's tables, and say where the page is."""
    console = Console()
    for table in tables_of(written, trajectories=trajectories):
        console.print(table)
    pages = [path for path in written.paths if path.name == PAGE]
    tell_written(console, [path for path in written.paths if path not in pages])
    for page in pages:
        say(console, f"the page, to open in a browser: {page}")


def tell_written(console: Console, paths: Sequence[Path]) -> None:
    """Say where results are."""
    for path in paths:
        say(console, f"written: {path}")


def say(console: Console, text: str) -> None:
    """Print a text as it is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
