"""Tables and pictures from files of records; no torch is needed, nothing is measured."""

from collections.abc import Sequence
from pathlib import Path

from symoptim.bench.picture import draw
from symoptim.bench.records import REFERENCE, Step
from symoptim.bench.sheets import describe, markdown, places, sheets
from symoptim.errors import RecordsError
from symoptim.support.files import write_files

_ENDINGS = (".md", ".png", ".svg")
_OURS = "Written by `symoptim bench --report`"


def require_room(records: Path) -> None:
    """See to it that tables and pictures can go beside the records, and replace those of an earlier run only.

    Args:
        records: their file.

    Raises:
        RecordsError: the records have the name of a table or picture, or another file has.
    """
    if records.suffix in _ENDINGS:
        better = records.with_suffix(".jsonl")
        raise RecordsError(f"{records} cannot have records, a table or picture has its name: say {better}")
    _require_ours(records.with_suffix(""))


def _require_ours(path: Path) -> None:
    table, *pictures = (path.with_name(_named(path) + ending) for ending in _ENDINGS)
    if table.is_file() and _OURS in table.read_text(encoding="utf-8", errors="replace"):
        return
    for other in (table, *pictures):
        if other.exists():
            raise RecordsError(f"{other} is no table or picture of symoptim bench: choose another --out")


def write_results(steps: Sequence[Step], path: Path) -> list[Path]:
    """Write the tables as Markdown, and a picture for every place figures are from.

    Args:
        steps: what was measured.
        path: of the files, without ending; pictures of further places are numbered.

    Returns:
        The files.

    Raises:
        RecordsError: there is another file of such a name, or they cannot be written.
    """
    _require_ours(path)
    name = _named(path)
    written = write_files(path.parent, {f"{name}.md": results_text(steps, name)})
    for number, mine in enumerate(places(steps).values(), start=1):
        written += draw(mine, path.with_name(name if number == 1 else f"{name}-{number}"))
    return written


def _named(path: Path) -> str:
    return path.name.replace(".", "-")  # what follows a dot would be taken for the ending


def results_text(steps: Sequence[Step], name: str) -> str:
    """All tables as Markdown, with links to the pictures.

    Args:
        steps: what was measured.
        name: of the pictures, without ending.

    Returns:
        The text.
    """
    texts = [
        "# What a step costs",
        f"{_OURS}; docs/speed.md says how it is measured.",
    ]
    for number, mine in enumerate(places(steps).values(), start=1):
        picture = f"{name}.png" if number == 1 else f"{name}-{number}.png"
        texts += [f"## {describe(mine)}", f"![The same as bars, with the floor as a line]({picture})"]
        texts += [markdown(sheet) for sheet in sheets(mine)]
    return "\n\n".join(texts) + "\n"


def only(steps: Sequence[Step], cases: Sequence[str] | None, contestants: Sequence[str] | None) -> list[Step]:
    """Steps of some cases and contestants, and of the one these are compared with."""
    return [
        step
        for step in steps
        if (cases is None or step.line["case"] in cases)
        and (contestants is None or step.line["contestant"] in {REFERENCE, *contestants})
    ]
