"""Loss curves from two scalings of one network: the picture, and how far they are apart epoch by epoch."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from symoptim.errors import RecordsError
from symoptim.report.table2 import ARCHITECTURES

BLUE, ORANGE = "#0072B2", "#D55E00"  # Okabe and Ito's palette, safe for color-blind eyes
WORDS = {
    "b-sgd": "plain SGD",
    "sm": "SM: symoptim.ScaledSGD",
    "un": "UN: symoptim.UnitNormSGD",
}


class Pair(NamedTuple):
    """Two loss curves of one update."""

    architecture: str
    update: str
    balanced: tuple[float, ...]
    rescaled: tuple[float, ...]

    @property
    def gaps(self) -> tuple[float, ...]:
        """Relative difference of the two curves at every epoch.

        >>> Pair("arch1", "sm", (2.0, 1.0), (2.0, 1.5)).gaps
        (0.0, 0.5)
        """
        return tuple(abs(a - b) / abs(a) for a, b in zip(self.balanced, self.rescaled, strict=True))


def as_csv(pairs: Sequence[Pair]) -> str:
    """One line per panel and epoch."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["architecture", "update", "epoch", "balanced", "rescaled", "relative_gap"])
    for pair in pairs:
        numbers = zip(pair.balanced, pair.rescaled, pair.gaps, strict=True)
        writer.writerows(
            [pair.architecture, pair.update, epoch, *row] for epoch, row in enumerate(numbers, start=1)
        )
    return table.getvalue()


def draw(pairs: Sequence[Pair], path: Path, *, caption: str) -> None:
    """Draw all panels, an architecture to a row, and save the picture.

    Args:
        pairs: the curves.
        path: PNG to write.
        caption: goes into the free cell of the grid, below the legend.

    Raises:
        RecordsError: the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = [[p for p in pairs if p.architecture == a] for a in dict.fromkeys(p.architecture for p in pairs)]
    widest = max(map(len, rows))
    make: Any = plt.subplots  # matplotlib's types are partly unknown
    figure, grid = make(
        len(rows), widest, figsize=(11, 5.4), sharex=True, sharey="row", layout="constrained", squeeze=False
    )
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, pair in zip(axes_row, row, strict=False):
            _draw_panel(axes, pair)
        for axes in axes_row[len(row) :]:
            _explain(axes, caption)
        axes_row[0].set_ylabel("training loss")
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise RecordsError(f"{path} cannot be written ({error.strerror})") from error
    finally:
        plt.close(figure)


def _draw_panel(axes: Any, pair: Pair) -> None:
    epochs = range(1, len(pair.balanced) + 1)
    axes.plot(epochs, pair.balanced, color=BLUE, linewidth=5, alpha=0.45, solid_capstyle="round")
    axes.plot(epochs, pair.rescaled, color=ORANGE, linewidth=1.8, linestyle=(0, (4, 2)))
    largest = max(pair.gaps)
    axes.set_yscale("log")
    title = f"{ARCHITECTURES[pair.architecture]}, {WORDS.get(pair.update, pair.update)}"
    axes.set_title(title, fontsize=10, loc="left")
    verdict = f"coincide to {largest:.0e}" if largest < 1e-6 else f"split by {largest:.0%}"
    axes.text(0.97, 0.93, verdict, transform=axes.transAxes, ha="right", va="top")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _explain(axes: Any, caption: str) -> None:
    """Use a free cell of the grid for the legend."""
    axes.axis("off")
    axes.plot([], [], color=BLUE, linewidth=5, alpha=0.45, label="balanced weights")
    axes.plot([], [], color=ORANGE, linewidth=1.8, linestyle=(0, (4, 2)), label="the same weights, rescaled")
    axes.legend(loc="upper left", frameon=False, fontsize=10)
    axes.text(0.03, 0.66, caption, transform=axes.transAxes, va="top", fontsize=10, linespacing=1.4)
