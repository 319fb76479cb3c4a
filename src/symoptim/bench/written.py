"""Tables and pictures from files of records; no torch is needed, nothing is measured."""

from collections.abc import Sequence
from pathlib import Path

from symoptim.bench.picture import draw
from symoptim.bench.records import REFERENCE, Step
from symoptim.bench.sheets import describe, markdown, places, sheets
from symoptim.records.files import write_files


def write_results(steps: Sequence[Step], path: Path) -> list[Path]:
    """Write the tables as Markdown, and a picture for every place figures are from.

    Args:
        steps: what was measured.
        path: of the files, without ending; pictures of further places are numbered.

    Returns:
        The files.
    """
    name = path.name.replace(".", "-")  # what follows a dot would be taken for the ending
    pictures: list[Path] = []
    for number, mine in enumerate(places(steps).values(), start=1):
        pictures += draw(mine, path.with_name(name if number == 1 else f"{name}-{number}"))
    return [*write_files(path.parent, {f"{name}.md": results_text(steps, name)}), *pictures]


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
        "Written by `symoptim bench --report`; docs/speed.md says how it is measured.",
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
