"""The trajectories as the paper lays them out: a row for every update, a column for either network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symoptim.paper.report.table2 import ARCHITECTURES, SCHEDULES
from symoptim.paper.report.trajectories import PANELS, Panel
from symoptim.support.plotting import color_of, pyplot, save


def draw_trajectories(panels: Sequence[Panel], titles: dict[str, str], path: Path) -> list[Path]:
    """Draw mean test error over the epochs, dotted, with a band of one standard deviation.

    The number of runs still running is the gray area at the foot of each panel.

    Args:
        panels: what to draw.
        titles: names of the updates.
        path: of the files, without ending.

    Returns:
        The files.
    """
    plt = pyplot()
    updates = list(dict.fromkeys(panel.update for panel in panels))
    size = (10, 0.8 + 2.1 * len(updates))
    figure, grid = plt.subplots(
        len(updates),
        len(PANELS),
        figsize=size,
        sharex="col",
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    _set_scale(grid[0, 0], [point.mean for panel in panels for point in panel.points])
    for column, (architecture, schedule) in enumerate(PANELS):
        for row, update in enumerate(updates):
            mine = [p for p in panels if (p.architecture, p.update) == (architecture, update)]
            axes = grid[row, column]
            _draw_panel(axes, mine[0], titles[update])
            if row == 0:
                network = f"{mine[0].depth}-layer {ARCHITECTURES[architecture]}, {SCHEDULES[schedule]}"
                axes.set_title(network, fontsize=11)
            if column == 0:
                axes.set_ylabel("test error")
        grid[-1, column].set_xlabel("epoch")
    return save(figure, path)


def _set_scale(axes: Any, means: Sequence[float]) -> None:
    """A logarithmic scale for all panels, with room below the lowest mean for the runs still running."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    if means:
        axes.set_ylim(0.6 * max(min(means), 1e-3), 1.4 * max(means))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _short(value: float, _position: int) -> str:
    return f"{value:g}".removeprefix("0")


def _draw_panel(axes: Any, panel: Panel, title: str) -> None:
    axes.text(0.97, 0.93, title, transform=axes.transAxes, ha="right", va="top", fontweight="bold")
    axes.grid(alpha=0.25, which="both", linewidth=0.5)
    if not panel.points:
        axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", va="center")
        return
    epochs = [point.epoch for point in panel.points]
    means = [point.mean for point in panel.points]
    # A single run has no deviation: NaN leaves the band out there.
    low = [max(point.mean - point.deviation, 1e-4) for point in panel.points]
    high = [point.mean + point.deviation for point in panel.points]
    color = color_of(panel.update)
    axes.fill_between(epochs, low, high, color=color, alpha=0.25, linewidth=0)
    axes.plot(epochs, means, color=color, linestyle=":", linewidth=2.2)
    _draw_running(axes, panel)


def _draw_running(axes: Any, panel: Panel) -> None:
    """Runs still running, on a scale of its own that fills the lowest eighth of the panel."""
    running = [point.running for point in panel.points]
    own = axes.twinx()
    own.fill_between(
        [point.epoch for point in panel.points], running, step="mid", color="0.5", alpha=0.3, linewidth=0
    )
    own.set_ylim(0, 8 * max(running))
    own.set_yticks([0, max(running)])
    own.tick_params(labelsize=7, length=2)
    own.set_zorder(axes.get_zorder() - 1)
    axes.patch.set_visible(False)
    axes.text(0.02, 0.03, "runs", transform=axes.transAxes, fontsize=7)
