"""All commands."""

import typer

from symoptim.cli.reproduce import reproduce

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Optimizers whose steps do not depend on how a network happens to be scaled.",
)
app.add_typer(reproduce, name="reproduce")


@app.callback()
def _commands() -> None:  # pyright: ignore[reportUnusedFunction] - keeps a single group a group
    pass
