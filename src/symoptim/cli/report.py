"""``symoptim report``: the page, from the records alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from typer import Argument

from symoptim.cli.tables import rates_table, scores_table, table2_table, verdicts_table
from symoptim.paper.report.write import MnistReport, write_report
from symoptim.paper.segnet.words import scene_remarks, scene_sentences
from symoptim.paper.table2.summary import Summary


def report(
    folder: Annotated[Path, Argument(metavar="OUT", help="Folder with the records of symoptim reproduce.")],
) -> None:
    """Write a page about recorded runs, the paper's claims judged by them; trains nothing."""
    show_report(folder)


def show_report(folder: Path, show: Callable[[Summary], Table] = table2_table) -> None:
    """Write a folder's report, print its tables, what was sought first, and say where the page is.

    Args:
        folder: with the records.
        show: the view of MNIST records to print.
    """
    console = Console()
    written = write_report(folder, lambda summary: console.print(show(summary)))
    if isinstance(written, MnistReport):
        quick = written.summary.experiment.configuration["profile"] == "quick"
        console.print(verdicts_table(written.judgments, quick=quick))
    else:
        console.print(scores_table(written.summary))
        if written.summary.search:
            console.print(rates_table(written.summary))
        for words in (*scene_sentences(written.summary), *scene_remarks(written.summary)):
            console.print(words, highlight=False)
    page, *others = written.paths
    tell_written(console, others)
    console.print(f"the page, to open in a browser: {page}", highlight=False, markup=False, soft_wrap=True)


def tell_written(console: Console, paths: Sequence[Path]) -> None:
    """Say where results are."""
    for path in paths:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
