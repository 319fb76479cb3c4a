"""Tables and pictures from files of records; no torch is needed, nothing is measured."""

from collections.abc import Sequence
from pathlib import Path

from symoptim.bench.picture import draw
from symoptim.bench.records import Step
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
    path = path.with_name(path.name.replace(".", "-"))  # what follows a dot would be taken for the ending
    texts: list[str] = []
    pictures: list[Path] = []
    for number, mine in enumerate(places(steps).values(), start=1):
        texts += [f"### {describe(mine)}", *(markdown(sheet) for sheet in sheets(mine))]
        name = path.name if number == 1 else f"{path.name}-{number}"
        pictures += draw(mine, path.with_name(name))
    return [*write_files(path.parent, {f"{path.name}.md": "\n\n".join(texts) + "\n"}), *pictures]


def only(steps: Sequence[Step], cases: Sequence[str] | None, contestants: Sequence[str] | None) -> list[Step]:
    """Steps of some cases and contestants."""
    return [
        step
        for step in steps
        if (cases is None or step.line["case"] in cases)
        and (contestants is None or step.line["contestant"] in contestants)
    ]
