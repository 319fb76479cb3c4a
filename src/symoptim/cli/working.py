"""Long work for the command line: records, progress, Ctrl-C."""

from collections.abc import Callable
from pathlib import Path

import torch
import typer
from rich.console import Console

from symoptim.cli.progress import ProgressWatcher, Results, median_error
from symoptim.paper.records.store import Plain, Records
from symoptim.support.devices import describe_device
from symoptim.support.provenance import command_line


def work_on(
    path: Path,
    name: str,
    configuration: Plain,
    device: torch.device,
    work: Callable[[Records, ProgressWatcher], None],
    *,
    describe: Callable[[Results], str] = median_error,
) -> None:
    """Do what the records at ``path`` do not have yet.

    Args:
        path: of the records file.
        name: of the experiment.
        configuration: all that its results depend on.
        device: where it is done.
        work: does it, with a progress bar, into the records.
        describe: puts the results of an epoch into a few words.

    Raises:
        Exit: the user pressed Ctrl-C; the records can be taken up.
    """
    console = Console(stderr=True)
    with Records(path, torch=torch.__version__, device=describe_device(device)) as records:
        if not records.begin(name, configuration):
            console.print(f"everything is in {path} already; nothing is trained", highlight=False)
            return
        try:
            with ProgressWatcher(console, describe) as watcher:
                work(records, watcher)
        except KeyboardInterrupt:
            console.print(
                f"stopped. {path} keeps what is done; to go on from its last checkpoint: {command_line()}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            raise typer.Exit(130) from None
