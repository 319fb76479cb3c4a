"""All commands."""

from typing import Annotated

import typer

from symoptim import __version__
from symoptim.cli.bench import bench
from symoptim.cli.discover import discover
from symoptim.cli.doctor import doctor
from symoptim.cli.report import report
from symoptim.cli.reproduce import reproduce

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Optimizers whose steps do not depend on how a network happens to be scaled.",
)
app.add_typer(reproduce, name="reproduce")
app.command(epilog="Example: symoptim report results/mnist-quick")(report)
app.command(epilog="Example: symoptim discover symoptim.models:SegNet --input 1,3,64,64 --certify")(discover)
app.command(epilog="Example: symoptim bench my_model.py:make --input 8,3,224,224")(bench)
app.command(epilog="Example: symoptim doctor")(doctor)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    pass
