"""Figures: the trajectories, and both networks with their symmetries marked on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from symoptim.paper.table2.cells import ARCHITECTURES, SCHEDULES
from symoptim.paper.table2.trajectories import PANELS, Panel
from symoptim.paper.updates import info
from symoptim.support.plotting import BLUE, DARK_ORANGE, Axes, pyplot, save, set_log_scale


def draw_trajectories(panels: Sequence[Panel], titles: dict[str, str], path: Path) -> list[Path]:
    """Draw mean test error over the epochs, dotted, with a band of one standard deviation.

    The number of runs still running is the gray area at the foot of each panel.
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


def _set_scale(axes: Axes, means: Sequence[float]) -> None:
    """A logarithmic scale for all panels, with room below the lowest mean for the runs still running."""
    set_log_scale(axes, (1, 2, 5), lambda value: f"{value:g}".removeprefix("0"))
    if means:
        axes.set_ylim(0.6 * max(min(means), 1e-3), 1.4 * max(means))


def _draw_panel(axes: Axes, panel: Panel, title: str) -> None:
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
    color = info(panel.update).color
    axes.fill_between(epochs, low, high, color=color, alpha=0.25, linewidth=0)
    axes.plot(epochs, means, color=color, linestyle=":", linewidth=2.2)
    _draw_running(axes, panel)


def _draw_running(axes: Axes, panel: Panel) -> None:
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


WIDTH, CLASSES = 64, 10


class Block(NamedTuple):
    """A box of the drawing: what it is, its size, and what a rescaling does to it, if anything."""

    title: str
    detail: str
    scaling: str = ""


def _hidden(layer: int, inputs: int, normalized: bool, scaling: str) -> list[Block]:
    blocks = [Block(f"$W_{layer}$", rf"${WIDTH} \times {inputs}$", scaling)]
    if normalized:
        blocks.append(Block("batch\nnorm", r"$\gamma, \beta$", "unchanged"))
    return [*blocks, Block("ReLU", ""), Block("max of\npairs", f"{WIDTH} → {WIDTH // 2}")]


def _arch1(inputs: int) -> list[Block]:
    pairs = "rows, in pairs:\n" + r"$\times\ \beta_1, \beta_1, \beta_2, \beta_2 \ldots$"
    outgoing = "columns:\n" + r"$\div\ \beta_1, \beta_2 \ldots$ and $\div\ \alpha_0$"
    return [
        Block("$x$", str(inputs)),
        *_hidden(1, inputs, False, "one scale:\n" + r"$\times\ \alpha_0$"),
        *_hidden(2, WIDTH // 2, False, pairs),
        Block(r"$\theta$", rf"${CLASSES} \times {WIDTH // 2}$", outgoing),
        Block("soft-\nmax", ""),
    ]


def _arch2(inputs: int) -> list[Block]:
    return [
        Block("$x$", str(inputs)),
        *_hidden(1, inputs, True, "every row:\n" + r"$\times\ \alpha_1, \alpha_2 \ldots$"),
        *_hidden(2, WIDTH // 2, True, "every row:\n" + r"$\times\ \beta_1, \beta_2 \ldots$"),
        Block(r"$\theta$", rf"${CLASSES} \times {WIDTH // 2}$", "unchanged"),
        Block("soft-\nmax", ""),
    ]


def draw_architectures(path: Path, *, inputs: int = 784) -> list[Path]:
    """Draw both networks, two layers deep, one below the other."""
    plt = pyplot()
    drawings = {"Arch1": _arch1(inputs), "Arch2": _arch2(inputs)}
    figure, grid = plt.subplots(len(drawings), 1, figsize=(11, 4.2), layout="constrained")
    for axes, (name, blocks) in zip(grid, drawings.items(), strict=True):
        axes.set_xlim(-0.7, max(map(len, drawings.values())) - 0.3)
        axes.set_ylim(-1.25, 0.95)
        axes.axis("off")
        axes.text(-0.38, 0.65, name, fontsize=13, fontweight="bold")
        for index, block in enumerate(blocks):
            _draw_block(axes, index, block)
            if index:
                arrow = {"arrowstyle": "->", "color": "0.5", "linewidth": 1.2}
                axes.annotate("", (index - 0.4, 0), (index - 0.6, 0), arrowprops=arrow)
    return save(figure, path)


def _draw_block(axes: Axes, x: float, block: Block) -> None:
    """A box; those that a rescaling changes are filled, and what happens to them stands below."""
    from matplotlib.patches import FancyBboxPatch

    moves = bool(block.scaling) and block.scaling != "unchanged"
    color = BLUE if moves else "0.5"
    box = FancyBboxPatch(
        (x - 0.33, -0.42),
        0.66,
        0.84,
        boxstyle="round,pad=0.05",
        facecolor=(*_rgb(color), 0.18 if moves else 0.06),
        edgecolor=color,
    )
    axes.add_patch(box)
    axes.text(x, 0.12 if block.detail else 0, block.title, ha="center", va="center", fontsize=11)
    axes.text(x, -0.27, block.detail, ha="center", va="center", fontsize=8)
    style: dict[str, Any] = {"color": DARK_ORANGE, "fontweight": "bold"} if moves else {"alpha": 0.6}
    axes.text(x, -0.66, block.scaling, ha="center", va="top", fontsize=8.5, **style)


def _rgb(color: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(color)
