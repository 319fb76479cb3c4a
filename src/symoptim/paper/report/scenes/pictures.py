"""Examples side by side: the image, its true labels, and what each update's network made of it."""

import io
from pathlib import Path
from typing import Any

from symoptim.paper.data.classes import CLASSES
from symoptim.paper.report.scenes.summary import SceneSummary
from symoptim.support.plotting import pyplot, save_png

CREDIT = "images and labels: CamVid, G. Brostow, J. Fauqueur, R. Cipolla (2009)"
COLORS = (*(kind.color for kind in CLASSES), (0, 0, 0))  # the last one has no class


def draw_predictions(summary: SceneSummary, path: Path) -> Path:
    """Draw the examples as rows; columns are the image, the truth and every update, a legend is below.

    Args:
        summary: what the records say.
        path: of the file, without ending.

    Returns:
        The file.
    """
    plt = pyplot()
    columns = ["image", "truth", *(result.title for result in summary.trained)]
    rows = len(summary.examples)
    figure, grid = plt.subplots(
        rows,
        len(columns),
        figsize=(2.4 * len(columns), 1.85 * rows + 0.9),
        layout="constrained",
        squeeze=False,
    )
    for row, example in zip(grid, summary.examples, strict=True):
        made = [summary.pictures[result.update][example.name] for result in summary.trained]
        pictures = [_decoded(example.image), *(colored(labels) for labels in (example.truth, *made))]
        for axes, picture in zip(row, pictures, strict=True):
            axes.imshow(picture, interpolation="nearest")
            axes.set_axis_off()
    for axes, title in zip(grid[0], columns, strict=True):
        axes.set_title(title, fontsize=11 if len(columns) < 5 else 14)  # wide figures are shown smaller
    credit = CREDIT if summary.experiment.configuration["data"] == "camvid" else None
    _add_legend(figure, plt, 10 if len(columns) < 5 else 14, credit)
    return save_png(figure, path)


def _add_legend(figure: Any, plt: Any, size: int, credit: str | None) -> None:
    """Colors of the classes, and whose images these are: it goes where the file goes."""
    names = (*(kind.name for kind in CLASSES), "no class")
    patches = [
        plt.Rectangle((0, 0), 1, 1, color=[value / 255 for value in color], label=name)
        for color, name in zip(COLORS, names, strict=True)
    ]
    look = {"frameon": False, "fontsize": size, "title_fontsize": size}
    figure.legend(handles=patches, loc="outside lower center", ncols=6, title=credit, **look)


def colored(labels: bytes) -> Any:
    """A gray PNG of labels as an array of colors ``(h, w, 3)``."""
    import numpy as np

    return np.array(COLORS, dtype=np.uint8)[_decoded(labels)]


def _decoded(picture: bytes) -> Any:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(picture)))
