"""``symoptim reproduce``: the paper's experiments by name.

Torch is slow to import, and not every command needs it: what does is imported where it is used.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from symoptim.cli import options
from symoptim.cli.report import show_report, tell_written
from symoptim.cli.tables import table2_table, trajectories_table
from symoptim.errors import OptionError
from symoptim.paper.report.architectures import draw_architectures
from symoptim.paper.report.summary import Summary
from symoptim.paper.report.write import RECORDS

reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's experiments and print what came out.")


def _mnist_command(show: Callable[[Summary], Table], help_text: str) -> Callable[..., None]:
    """A command that carries out the MNIST experiment and shows one view of it: the records are the same."""

    def command(
        profile: options.Profile = "quick",
        data: options.DataOrAuto = "auto",
        data_dir: options.DataDir = None,
        out: options.Out = None,
        device: options.Device = "auto",
        repeats: options.Repeats = None,
        seed: options.Seed = 0,
        updates: options.Updates = "b-sgd,sm,un",
        grow: options.Grow = 1.1,
        shrink: options.Shrink = 0.5,
        classifier: options.Start = "rows",
    ) -> None:
        from symoptim.cli.mnist import carry_out, find_images
        from symoptim.ensemble.run import Bold
        from symoptim.paper.experiments.protocol import protocol_for
        from symoptim.support.devices import device_named

        changes = {"repeats": repeats, "seed": seed, "updates": _names(updates), "classifier": classifier}
        bold, where = Bold(grow=grow, shrink=shrink), device_named(device)
        protocol_for(profile, "mnist", bold=bold, **changes)  # refuses bad options before data are fetched
        found, images = find_images(data, data_dir, profile)
        protocol = protocol_for(profile, found, bold=bold, **changes)
        folder = out or Path("results") / f"{found}-{profile}"
        carry_out(protocol, folder / RECORDS, profile=profile, data=found, images=images, device=where)
        show_report(folder, show)

    command.__doc__ = help_text
    return command


reproduce.command("table2", epilog="Example: symoptim reproduce table2 --profile paper --device cuda")(
    _mnist_command(table2_table, "Test errors of every update, schedule, depth and architecture (Table 2).")
)
reproduce.command("trajectories", epilog="Example: symoptim reproduce trajectories --profile quick")(
    _mnist_command(
        trajectories_table,
        "Test error over the epochs, of the runs of table2 (trained if need be).",
    )
)


@reproduce.command(epilog="Example: symoptim reproduce segnet --device cuda --updates un,sm,sgd,adamw")
def segnet(
    profile: options.SceneProfile = None,
    data: options.SceneData = "auto",
    data_dir: options.SceneDir = None,
    out: options.Out = None,
    device: options.Device = "auto",
    updates: options.SceneUpdates = None,
    epochs: options.SceneEpochs = None,
    repeats: options.SceneRepeats = None,
    seed: options.Seed = 0,
    schedule: options.SceneSchedule = "cosine",
    weighting: options.Weighting = "root",
    rates: options.Rates = None,
    compiled: options.Compiled = False,
) -> None:
    """Train SegNet on road scenes, the paper's last experiment: scores, pictures, sensitivity to the rate."""
    from symoptim.cli.segnet import carry_out_segnet, choose_scenes
    from symoptim.paper.experiments.segnet_protocol import segnet_protocol
    from symoptim.support.devices import device_named

    where = device_named(device)
    if compiled and where.type != "cuda":
        raise OptionError(f"--compile is for CUDA devices, this is {where}: leave it out")
    size = profile or ("paper" if where.type == "cuda" else "quick")
    changes = {
        "epochs": epochs,
        "repeats": repeats,
        "seed": seed,
        "schedule": schedule,
        "weighting": weighting,
    }
    protocol = segnet_protocol(
        size, updates=None if updates is None else _names(updates), rates=_numbers(rates), **changes
    )
    scenes = choose_scenes(data, data_dir, size)
    folder = out or Path("results") / f"{scenes}-{size}"
    carry_out_segnet(
        protocol,
        folder / RECORDS,
        profile=size,
        data=scenes,
        directory=data_dir,
        device=where,
        compiled=compiled,
    )
    show_report(folder)


def _names(text: str) -> tuple[str, ...]:
    """Names in a list one has typed."""
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


def _numbers(text: str | None) -> tuple[float, ...] | None:
    """Numbers in a list one has typed; None if there is none."""
    if text is None or _names(text) == ("none",):
        return None if text is None else ()
    try:
        numbers = tuple(map(float, _names(text)))
        if not numbers:
            raise ValueError("there are none")
        return numbers
    except ValueError as error:
        raise OptionError(f"--rates must be numbers separated by commas, or none; got '{text}'") from error


@reproduce.command(epilog="Example: symoptim reproduce invariance --spread 1000 --out results/far")
def invariance(
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    out: Annotated[Path, Option(help="Folder of the results.")] = Path("results/invariance"),
    device: options.Device = "auto",
    depth: Annotated[int, Option(help="Hidden layers.")] = 2,
    epochs: Annotated[int, Option(help="Epochs of training.")] = 25,
    spread: Annotated[float, Option(help="Scales are between 1/SPREAD and SPREAD.")] = 4.0,
    seed: options.Seed = 0,
) -> None:
    """Train one network from two scalings of its weights; print and draw how far the loss curves part."""
    from symoptim.cli.invariance import show_invariance
    from symoptim.paper.experiments.invariance import Rescaling
    from symoptim.support.devices import device_named

    rescaling = Rescaling(depth=depth, epochs=epochs, spread=spread, seed=seed)
    console = Console()
    tell_written(console, show_invariance(rescaling, data, data_dir, out, device_named(device), console))


@reproduce.command(epilog="Example: symoptim reproduce architectures --out results/architectures")
def architectures(
    out: Annotated[Path, Option(help="Folder of the results.")] = Path("results/architectures"),
) -> None:
    """Draw Arch1 and Arch2 with their symmetries marked on them (the paper's Figures 1 and 2)."""
    tell_written(Console(), draw_architectures(out / "architectures"))
