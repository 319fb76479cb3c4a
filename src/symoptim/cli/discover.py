"""``symoptim discover``: the rescalings of any model, from the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from symoptim.cli.report import tell_written
from symoptim.errors import OptionError
from symoptim.support.files import write_files

if TYPE_CHECKING:
    from symoptim.symmetry.spec import SymmetrySpec

Factory = Annotated[
    str,
    Argument(
        metavar="MODULE:FACTORY",
        help="What makes the model, a function in a module or .py file; or the model itself.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    Option(
        "--input",
        help="Shape of an input, 2,3,224,224; of tokens, 2,16:50257 (integers below). Repeat for several.",
    ),
]
Mode = Annotated[
    Literal["as-made", "training", "evaluation"], Option(help="Batch normalization differs between them.")
]
Json = Annotated[Path | None, Option("--json", help="Write the whole group there.")]
Certified = Annotated[bool, Option("--certify", help="Rescale at random in float64 and compare outputs.")]
AsMappings = Annotated[bool, Option("--mappings", help="Print the mappings that AWQ and SmoothQuant take.")]
Vouched = Annotated[
    list[str] | None,
    Option("--vouch", help="Module that takes no other path than the inputs show, layers.*.experts. Repeat."),
]
Drawing = Annotated[Path | None, Option("--out", help="Draw the network and its rescalings, an SVG file.")]


def discover(
    factory: Factory,
    inputs: Inputs = None,
    mode: Mode = "as-made",
    vouch: Vouched = None,
    json_path: Json = None,
    certify: Certified = False,
    mappings: AsMappings = False,
    out: Drawing = None,
) -> None:
    """Find every rescaling of a model's weights that leaves its outputs as they are.

    The factory needs no arguments and returns the model, or the model and its inputs: a tuple, or a
    dictionary of inputs by name.
    """
    from symoptim.cli.models import load_model  # it needs torch, which takes a second to import
    from symoptim.symmetry.discover import discover as find
    from symoptim.symmetry.drawing import draw

    if out is not None and out.suffix != ".svg":
        better = out.with_suffix(".svg") if out.name else "network.svg"
        raise OptionError(f"the drawing is an SVG file: name it so, --out {better}")
    for option, path in (("--json", json_path), ("--out", out)):
        if path is not None:
            _require_writable(option, path)
    console, progress = Console(), Console(stderr=True)
    with progress.status("making the model"):
        call = load_model(factory, inputs or [])
        if mode != "as-made":
            call.model.train(mode == "training")
    with progress.status("looking for symmetries"):
        try:
            spec = find(*call, vouch=vouch or ())
        except OptionError:
            raise
        except Exception:
            call.require_running()  # the model's own error is the better one
            raise
    show(console, spec)
    certificate = None
    if certify:
        with progress.status("certifying"):
            call.require_running()  # it was traced, with inputs that have no values
            certificate = spec.certify(*call)
        console.print(f"certificate {certificate}", highlight=False)
    if mappings:
        _show_mappings(console, spec)
    for path, text in ((json_path, spec.to_json), (out, lambda: draw(spec))):
        if path is not None:
            tell_written(console, write_files(path.parent, {path.name: text()}))
    if certificate is not None and not certificate.holds:
        raise SystemExit(1)


def _require_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be written, before long work is done for it."""
    was_there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        if not was_there:
            path.unlink()
    except OSError as error:
        raise OptionError(
            f"{option} {path} cannot be written ({error.strerror}): name a file in a folder you can write to"
        ) from error


def show(console: Console, spec: "SymmetrySpec") -> None:
    """Print the kinds of units, and what was pinned and why."""
    from symoptim.symmetry.describe import remarks, table_of

    table = Table("units", title=f"{len(spec)} rescalings")
    table.add_column("where", overflow="fold")
    table.add_column("what moves with each", overflow="fold")
    for kind in table_of(spec):
        table.add_row(str(kind.number), kind.place, "\n".join(map(str, kind.slices)))
    console.print(table, markup=False)
    for remark in remarks(spec):
        console.print(remark, highlight=False, markup=False)


def _show_mappings(console: Console, spec: "SymmetrySpec") -> None:
    from symoptim.symmetry.mappings import as_yaml, mappings

    found = mappings(spec)
    text = as_yaml(found)
    if not any(one.is_simple for one in found):
        text += " []  # none that AWQ and SmoothQuant apply rightly; indexed_mappings of Python may have some"
    # As it is, without wrapping: it is to be copied.
    console.print(text, highlight=False, markup=False, soft_wrap=True)
