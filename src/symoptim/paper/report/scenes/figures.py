"""Curves: how training went, and how much the score depends on the rate."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symoptim.paper.report.scenes.summary import RatePoint, SceneSummary
from symoptim.support.plotting import color_of, line_of, pyplot, save


def draw_curves(summary: SceneSummary, path: Path) -> list[Path]:
    """Draw the training loss and the score on the validation set over the epochs, every run a line.

    Args:
        summary: what the records say.
        path: of the files, without ending.

    Returns:
        The files.
    """
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for result in summary.trained:
        for number, run in enumerate(result.runs):
            look = line_of(result.update) | {"alpha": 0.75, "linewidth": 1.4}
            look |= {"label": result.title} if number == 0 else {}
            left.plot([e.epoch for e in run.curve], [e.loss for e in run.curve], **look)
            measured = [e for e in run.curve if not math.isnan(e.validation_error)]
            scores = [1 - e.validation_error for e in measured]
            right.plot([e.epoch for e in measured], scores, marker="o", markersize=3, **look)
    _set_log_scale(left)
    left.set_ylabel("training loss")
    right.set_ylabel("mean IoU, validation set")
    left.legend(frameon=False, handlelength=3)
    for axes in (left, right):
        _finish(axes, "epoch")
    return save(figure, path)


def draw_sensitivity(points: Sequence[RatePoint], titles: dict[str, str], path: Path) -> list[Path]:
    """Draw the test score of every short run against its rate.

    Args:
        points: the runs.
        titles: names of the updates.
        path: of the files, without ending.

    Returns:
        The files.
    """
    figure, axes = pyplot().subplots(figsize=(8, 4.2), layout="constrained")
    for update in dict.fromkeys(point.update for point in points):
        mine = sorted((p for p in points if p.update == update), key=lambda point: point.rate)
        rates, scores = [p.rate for p in mine], [p.test for p in mine]
        axes.plot(rates, scores, marker="o", label=titles[update], **line_of(update))
        lost = [p for p in mine if p.diverged]
        axes.scatter([p.rate for p in lost], [0] * len(lost), marker="x", s=70, color=color_of(update))
    axes.set_xscale("log")
    axes.set_ylim(bottom=-0.02)
    axes.set_ylabel("mean IoU, test set")
    figure.legend(loc="outside right upper", frameon=False, handlelength=3)  # lines may be anywhere within
    _finish(axes, "learning rate")
    return save(figure, path)


def _set_log_scale(axes: Any) -> None:
    """A logarithmic scale with numbers as one writes them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 4, 6, 8)))  # some within any range
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(value: float, _position: int) -> str:
    return f"{value:g}"


def _finish(axes: Any, label: str) -> None:
    axes.set_xlabel(label)
    if label == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.25)
