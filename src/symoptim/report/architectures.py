"""Drawings of Arch1 and Arch2 (the paper's Figures 1 and 2), with their symmetries marked on them."""

from pathlib import Path
from typing import Any, NamedTuple

from symoptim.report.style import BLUE, ORANGE, pyplot, save

WIDTH, CLASSES, INPUTS = 64, 10, 784


class Block(NamedTuple):
    """A box of the drawing: what it is, its size, and what a rescaling does to it, if anything."""

    title: str
    detail: str
    scaling: str = ""


def _hidden(layer: int, normalized: bool, scaling: str) -> list[Block]:
    inputs = INPUTS if layer == 1 else WIDTH // 2
    blocks = [Block(f"$W_{layer}$", rf"${WIDTH} \times {inputs}$", scaling)]
    if normalized:
        blocks.append(Block("batch\nnorm", r"$\gamma, \beta$", "unchanged"))
    return [*blocks, Block("ReLU", ""), Block("max of\npairs", f"{WIDTH} → {WIDTH // 2}")]


ARCH1 = [
    Block("$x$", str(INPUTS)),
    *_hidden(1, False, "one scale:\n" + r"$\times\ \alpha_0$"),
    *_hidden(2, False, "rows, in pairs:\n" + r"$\times\ \beta_1, \beta_1, \beta_2, \beta_2 \ldots$"),
    Block(
        r"$\theta$",
        rf"${CLASSES} \times {WIDTH // 2}$",
        "columns:\n" + r"$\div\ \beta_1, \beta_2 \ldots$ and $\div\ \alpha_0$",
    ),
    Block("soft-\nmax", ""),
]
ARCH2 = [
    Block("$x$", str(INPUTS)),
    *_hidden(1, True, "every row:\n" + r"$\times\ \alpha_1, \alpha_2 \ldots$"),
    *_hidden(2, True, "every row:\n" + r"$\times\ \beta_1, \beta_2 \ldots$"),
    Block(r"$\theta$", rf"${CLASSES} \times {WIDTH // 2}$", "unchanged"),
    Block("soft-\nmax", ""),
]
DRAWINGS = {"Arch1": ARCH1, "Arch2": ARCH2}


def draw_architectures(path: Path) -> list[Path]:
    """Draw both networks, two layers deep, one below the other.

    Args:
        path: of the files, without ending.

    Returns:
        The files.
    """
    plt = pyplot()
    figure, grid = plt.subplots(len(DRAWINGS), 1, figsize=(11, 4.2), layout="constrained")
    for axes, (name, blocks) in zip(grid, DRAWINGS.items(), strict=True):
        axes.set_xlim(-0.7, max(map(len, DRAWINGS.values())) - 0.3)
        axes.set_ylim(-1.25, 0.95)
        axes.axis("off")
        axes.text(-0.38, 0.65, name, fontsize=13, fontweight="bold")
        for index, block in enumerate(blocks):
            _draw_block(axes, index, block)
            if index:
                arrow = {"arrowstyle": "->", "color": "0.5", "linewidth": 1.2}
                axes.annotate("", (index - 0.4, 0), (index - 0.6, 0), arrowprops=arrow)
    return save(figure, path)


def _draw_block(axes: Any, x: float, block: Block) -> None:
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
    style: dict[str, Any] = {"color": ORANGE, "fontweight": "bold"} if moves else {"alpha": 0.6}
    axes.text(x, -0.66, block.scaling, ha="center", va="top", fontsize=8.5, **style)


def _rgb(color: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(color)
