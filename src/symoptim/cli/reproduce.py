"""``symoptim reproduce``: the paper's experiments by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from symoptim.cli.invariance import invariance
from symoptim.cli.progress import DownloadBar, ProgressWatcher
from symoptim.cli.tables import table2_table, trajectories_table
from symoptim.engine.numerics import describe_device, device_named
from symoptim.engine.registry import UPDATES
from symoptim.engine.run import Bold
from symoptim.experiments.datasets import digest_of, load
from symoptim.experiments.protocol import Protocol, protocol_for
from symoptim.experiments.reproduce import Experiment
from symoptim.records.provenance import command_line
from symoptim.records.store import Records
from symoptim.report.summary import Summary, summarize, write_summary

reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's experiments and print what came out.")

RECORDS = "records.sqlite"


def _mnist_command(show: Callable[[Summary], Table], help_text: str) -> Callable[..., None]:
    """A command that carries out the MNIST experiment and shows one view of it: the records are the same."""

    def command(
        profile: Annotated[
            Literal["quick", "paper"], Option(help="quick: minutes on a laptop; paper: in full, for a GPU.")
        ] = "quick",
        data: Annotated[Literal["mnist", "fashion-mnist", "digits"], Option(help="Data set.")] = "mnist",
        data_dir: Annotated[
            Path | None, Option(help="Folder with its files; else SYMOPTIM_DATA, or it is downloaded.")
        ] = None,
        out: Annotated[
            Path | None, Option(help="Folder of the results.", show_default="results/DATA-PROFILE")
        ] = None,
        device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
        repeats: Annotated[int | None, Option(help="Repeats.", show_default="quick 3, paper 10")] = None,
        seed: Annotated[int, Option(help="Of everything random.")] = 0,
        updates: Annotated[str, Option(help=f"Columns, of {', '.join(UPDATES)}.")] = "b-sgd,sm,un",
        grow: Annotated[float, Option(help="Factor of the bold driver when the loss is not higher.")] = 1.1,
        shrink: Annotated[float, Option(help="Factor of the bold driver when it is.")] = 0.5,
        classifier: Annotated[
            Literal["rows", "columns"], Option(help="What of the classifier starts with unit norm.")
        ] = "rows",
    ) -> None:
        names = tuple(name.strip() for name in updates.split(",") if name.strip())
        changes = {"repeats": repeats, "seed": seed, "updates": names, "classifier": classifier}
        protocol = protocol_for(profile, data, bold=Bold(grow=grow, shrink=shrink), **changes)
        folder = out or Path("results") / f"{data}-{profile}"
        carry_out(protocol, profile=profile, data=data, data_dir=data_dir, folder=folder, device=device)
        summary = summarize(folder / RECORDS)
        console = Console()
        console.print(show(summary))
        for path in write_summary(summary, folder):
            console.print(f"written: {path}", highlight=False, soft_wrap=True)

    command.__doc__ = help_text
    return command


def carry_out(
    protocol: Protocol, *, profile: str, data: str, data_dir: Path | None, folder: Path, device: str
) -> None:
    """Train what the records in ``folder`` do not have yet, with progress; Ctrl-C leaves them resumable."""
    console = Console(stderr=True)
    where = device_named(device)
    images = load(data, data_dir, progress=DownloadBar(console))
    with Records(folder / RECORDS, torch=torch.__version__, device=describe_device(where)) as records:
        configuration = {"profile": profile, "data": data, "digest": digest_of(images)}
        configuration |= {"titles": {name: UPDATES[name].title for name in protocol.updates}}
        records.begin("mnist", {**configuration, "protocol": protocol.as_dict()})
        try:
            with ProgressWatcher(console) as watcher:
                Experiment(protocol, images, where, records, watcher).carry_out()
        except KeyboardInterrupt:
            console.print(
                f"stopped; {records.path} has everything up to the last epoch. To go on: {command_line()}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            raise typer.Exit(130) from None


reproduce.command("table2", epilog="Example: symoptim reproduce table2 --profile paper --device cuda")(
    _mnist_command(table2_table, "Test errors of every update, schedule, depth and architecture (Table 2).")
)
reproduce.command("trajectories", epilog="Example: symoptim reproduce trajectories --profile quick")(
    _mnist_command(trajectories_table, "Test error over the epochs, from the same records as table2.")
)
reproduce.command(epilog="Example: symoptim reproduce invariance --spread 1000 --out results/far")(invariance)
