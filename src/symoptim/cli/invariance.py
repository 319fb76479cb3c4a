"""``symoptim reproduce invariance``: the experiment behind the README's picture."""

import textwrap
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer import Option

from symoptim.cli.progress import DownloadBar
from symoptim.engine.numerics import device_named
from symoptim.engine.registry import UPDATES
from symoptim.experiments.datasets import load
from symoptim.experiments.invariance import PANELS, Rescaling, train_pairs
from symoptim.report.files import write_files
from symoptim.report.invariance import Pair, as_csv, draw
from symoptim.report.table2 import ARCHITECTURES


def invariance(
    data: Annotated[Literal["digits", "mnist", "fashion-mnist"], Option(help="Data set.")] = "digits",
    data_dir: Annotated[Path | None, Option(help="Folder with its files.")] = None,
    out: Annotated[Path, Option(help="Folder of the results.")] = Path("results/invariance"),
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    depth: Annotated[int, Option(help="Hidden layers.")] = 2,
    epochs: Annotated[int, Option(help="Epochs of training.")] = 25,
    spread: Annotated[float, Option(help="Scales are between 1/SPREAD and SPREAD.")] = 4.0,
    seed: Annotated[int, Option(help="Of weights, scales and batches.")] = 0,
) -> None:
    """Train one network from two scalings of its weights; print and draw how far the loss curves part."""
    rescaling = Rescaling(depth=depth, epochs=epochs, spread=spread, seed=seed)
    progress_console = Console(stderr=True)
    where, images = device_named(device), load(data, data_dir, progress=DownloadBar(progress_console))
    columns = (TextColumn("epochs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    pairs: list[Pair] = []
    with Progress(*columns, console=progress_console) as progress:
        task = progress.add_task("epochs", total=epochs * len(PANELS))
        for curves in train_pairs(rescaling, images, where):
            pairs = [Pair(*curve) for curve in curves]
            progress.advance(task)
    paths = write_files(out, {"invariance.csv": as_csv(pairs)})
    draw(pairs, out / "invariance.png", caption=_caption(rescaling, data))
    console = Console()
    console.print(_table(pairs))
    for path in (*paths, out / "invariance.png"):
        console.print(f"written: {path}", highlight=False, soft_wrap=True)


def _caption(rescaling: Rescaling, data: str) -> str:
    text = (
        f"One network, one function, two scalings of its weights (by 1/{rescaling.spread:g} to "
        f"{rescaling.spread:g}); same data ({data}), same batches, rate {rescaling.rate:g}. Training loss "
        "per epoch; the numbers are the largest relative difference of the two curves."
    )
    return textwrap.fill(text, 42)


def _table(pairs: list[Pair]) -> Table:
    table = Table("epoch", title="Relative difference of the loss from two scalings of one network")
    for pair in pairs:
        table.add_column(f"{ARCHITECTURES[pair.architecture]}\n{UPDATES[pair.update].title}")
    gaps = [pair.gaps for pair in pairs]
    for epoch, row in enumerate(zip(*gaps, strict=True), start=1):
        table.add_row(str(epoch), *(f"{gap:.1e}" for gap in row))
    return table
