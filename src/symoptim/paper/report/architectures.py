"""Drawings of Arch1 and Arch2 (the paper's Figures 1 and 2), with their symmetries marked on them."""

from pathlib import Path
from typing import Any, NamedTuple

from symoptim.support.plotting import BLUE, DARK_ORANGE, pyplot, save

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
    """Draw both networks, two layers deep, one below the other.

    Args:
        path: of the files, without ending.
        inputs: number of pixels.

    Returns:
        The files.
    """
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
    style: dict[str, Any] = {"color": DARK_ORANGE, "fontweight": "bold"} if moves else {"alpha": 0.6}
    axes.text(x, -0.66, block.scaling, ha="center", va="top", fontsize=8.5, **style)


def _rgb(color: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(color)
