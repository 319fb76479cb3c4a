"""``symoptim reproduce``: the paper's experiments by name; :func:`symoptim.paper.reproduce` does the work."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer import Option

from symoptim.cli import options
from symoptim.cli.progress import DownloadBar, ProgressBar, loss_and_score, median_error
from symoptim.cli.report import say, show_report
from symoptim.errors import OptionError
from symoptim.paper import api
from symoptim.paper.choices import ExperimentName
from symoptim.support.provenance import command_line

reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's experiments and print what came out.")


def _run(name: ExperimentName, **config: Any) -> None:
    """Carry out an experiment with progress on the terminal, and show its report."""
    console = Console(stderr=True)
    try:
        with ProgressBar(console, loss_and_score if name == "segnet" else median_error) as progress:
            written = api.reproduce(
                name,
                progress=progress,
                notice=lambda text: say(console, f"notice: {text}"),
                download=DownloadBar(console),
                **config,
            )
    except KeyboardInterrupt as stopped:
        if not str(stopped):  # nothing was trained yet
            raise
        say(console, f"{stopped}; to go on from its last checkpoint: {command_line()}")
        raise typer.Exit(130) from None
    show_report(written, trajectories=name == "trajectories")


def _of_mnist(name: ExperimentName, help_text: str) -> Callable[..., None]:
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
        from symoptim.ensemble.run import Bold

        bold, names = Bold(grow=grow, shrink=shrink), _names(updates)
        protocol = {
            "repeats": repeats,
            "seed": seed,
            "updates": names,
            "bold": bold,
            "classifier": classifier,
        }
        _run(name, profile=profile, data=data, data_dir=data_dir, out=out, device=device, **protocol)

    command.__doc__ = help_text
    return command


reproduce.command("table2", epilog="Example: symoptim reproduce table2 --profile paper --device cuda")(
    _of_mnist("table2", "Test errors of every update, schedule, depth and architecture (Table 2).")
)
reproduce.command("trajectories", epilog="Example: symoptim reproduce trajectories --profile quick")(
    _of_mnist("trajectories", "Test error over the epochs, of the runs of table2 (trained if need be).")
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
    weighting: options.SceneWeighting = "root",
    rates: options.Rates = None,
    compiled: options.Compiled = False,
) -> None:
    """Train SegNet on road scenes, the paper's last experiment: scores, pictures, sensitivity to the rate."""
    names = None if updates is None else _names(updates)
    protocol = {
        "updates": names,
        "epochs": epochs,
        "repeats": repeats,
        "seed": seed,
        "rates": _numbers(rates),
    }
    protocol |= {"schedule": schedule, "weighting": weighting, "compiled": compiled}
    _run("segnet", profile=profile, data=data, data_dir=data_dir, out=out, device=device, **protocol)


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
    protocol = {"depth": depth, "epochs": epochs, "spread": spread, "seed": seed}
    _run("invariance", data=data, data_dir=data_dir, out=out, device=device, **protocol)


@reproduce.command(epilog="Example: symoptim reproduce architectures --out results/architectures")
def architectures(
    out: Annotated[Path, Option(help="Folder of the results.")] = Path("results/architectures"),
) -> None:
    """Draw Arch1 and Arch2 with their symmetries marked on them (the paper's Figures 1 and 2)."""
    show_report(api.reproduce("architectures", out=out))
