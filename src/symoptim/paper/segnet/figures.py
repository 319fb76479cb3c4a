"""Figures: learning curves, scores against rates, examples side by side."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symoptim.paper.data.classes import CLASSES
from symoptim.paper.segnet.summary import RatePoint, SceneSummary
from symoptim.paper.updates import info
from symoptim.support.plotting import Axes, Canvas, pyplot, save, save_png, set_log_scale


def draw_curves(summary: SceneSummary, path: Path) -> list[Path]:
    """Draw the training loss and the score on the validation set over the epochs, every run a line."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for result in summary.trained:
        for number, run in enumerate(result.runs):
            style = info(result.update).line | {"alpha": 0.75, "linewidth": 1.4}
            style |= {"label": result.title} if number == 0 else {}
            left.plot([e.number for e in run.curve], [e.loss for e in run.curve], **style)
            measured = [e for e in run.curve if not math.isnan(e.validation_error)]
            scores = [1 - e.validation_error for e in measured]
            right.plot([e.number for e in measured], scores, marker="o", markersize=3, **style)
    set_log_scale(left, (1, 1.2, 1.5, 2, 3, 4, 6, 8))  # some of these are within any range
    left.set_ylabel("training loss")
    right.set_ylabel("mean IoU, validation set")
    left.legend(frameon=False, handlelength=3)
    for axes in (left, right):
        _finish(axes, "epoch")
    return save(figure, path)


def draw_sensitivity(points: Sequence[RatePoint], titles: dict[str, str], path: Path) -> list[Path]:
    """Draw the test score of every short run against its rate."""
    figure, axes = pyplot().subplots(figsize=(8, 4.2), layout="constrained")
    for update in dict.fromkeys(point.update for point in points):
        mine = sorted((p for p in points if p.update == update), key=lambda point: point.rate)
        rates, scores = [p.rate for p in mine], [p.test for p in mine]
        axes.plot(rates, scores, marker="o", label=titles[update], **info(update).line)
        lost = [p for p in mine if p.diverged]
        axes.scatter([p.rate for p in lost], [0] * len(lost), marker="x", s=70, color=info(update).color)
    axes.set_xscale("log")
    axes.set_ylim(bottom=-0.02)
    axes.set_ylabel("mean IoU, test set")
    figure.legend(loc="outside right upper", frameon=False, handlelength=3)  # lines may be anywhere within
    _finish(axes, "learning rate")
    return save(figure, path)


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    if label == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.25)


CREDIT = "images and labels: CamVid, G. Brostow, J. Fauqueur, R. Cipolla (2009)"
COLORS = (*(kind.color for kind in CLASSES), (0, 0, 0))  # the last one has no class


def draw_predictions(summary: SceneSummary, path: Path) -> Path:
    """Draw the examples as rows; columns are the image, the truth and every update, a legend is below."""
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


def _add_legend(figure: Canvas, plt: Any, size: int, credit: str | None) -> None:
    """Colors of the classes, and whose images these are: it goes where the file goes."""
    names = (*(kind.name for kind in CLASSES), "no class")
    patches = [
        plt.Rectangle((0, 0), 1, 1, color=[value / 255 for value in color], label=name)
        for color, name in zip(COLORS, names, strict=True)
    ]
    style = {"frameon": False, "fontsize": size, "title_fontsize": size}
    figure.legend(handles=patches, loc="outside lower center", ncols=6, title=credit, **style)


def colored(labels: bytes) -> Any:
    """A gray PNG of labels as an array of colors ``(h, w, 3)``."""
    import numpy as np

    return np.array(COLORS, dtype=np.uint8)[_decoded(labels)]


def _decoded(picture: bytes) -> Any:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(picture)))
