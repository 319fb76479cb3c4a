"""Carrying out the invariance experiment for the command line."""

import textwrap
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from symoptim.cli.progress import DownloadBar
from symoptim.ensemble.registry import UPDATES
from symoptim.paper.experiments.datasets import load
from symoptim.paper.experiments.invariance import PANELS, Rescaling, train_pairs
from symoptim.paper.experiments.names import DataName
from symoptim.paper.records.pairs import Pair, to_csv
from symoptim.paper.report.invariance import draw_pairs
from symoptim.paper.report.table2 import ARCHITECTURES
from symoptim.support.files import require_folder, write_files


def show_invariance(
    rescaling: Rescaling,
    data: DataName,
    data_dir: Path | None,
    out: Path,
    device: torch.device,
    console: Console,
) -> list[Path]:
    """Train all pairs with a progress bar, print the table of gaps, and write it with the picture.

    Args:
        rescaling: the experiment.
        data: which images.
        data_dir: where they are.
        out: folder of the results.
        device: where to train.
        console: where to print.

    Returns:
        The files that were written.
    """
    require_folder(out)
    progress_console = Console(stderr=True)
    images = load(data, data_dir, progress=DownloadBar(progress_console))
    columns = (TextColumn("epochs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    pairs: list[Pair] = []
    with Progress(*columns, console=progress_console) as progress:
        task = progress.add_task("epochs", total=rescaling.epochs * len(PANELS))
        for trained in train_pairs(rescaling, images, device):
            pairs = trained
            progress.advance(task)
    console.print(_table(pairs))
    caption = textwrap.fill(_caption(rescaling, data), 42)
    return [
        *write_files(out, {"invariance.csv": to_csv(pairs)}),
        *draw_pairs(pairs, out / "invariance", caption=caption),
    ]


def _caption(rescaling: Rescaling, data: DataName) -> str:
    return (
        f"One network, one function, two scalings of its weights (by 1/{rescaling.spread:g} to "
        f"{rescaling.spread:g}); same data ({data}), same batches, rate {rescaling.rate:g}. Training loss "
        "per epoch; the numbers are the largest relative difference of the two curves."
    )


def _table(pairs: list[Pair]) -> Table:
    table = Table("epoch", title="Relative difference of the loss from two scalings of one network")
    for pair in pairs:
        table.add_column(f"{ARCHITECTURES[pair.architecture]}\n{UPDATES[pair.update].title}")
    gaps = [pair.gaps for pair in pairs]
    for epoch, row in enumerate(zip(*gaps, strict=True), start=1):
        table.add_row(str(epoch), *(f"{gap:.1e}" for gap in row))
    return table
