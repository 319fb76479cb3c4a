"""Draw what ``sensitivity.py`` found, and print its table.

python benchmarks/sensitivity_figure.py [RESULTS.jsonl] [--out docs/sensitivity.png]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sensitivity_table import BADLY_SCALED, BALANCED, RESULTS, TITLES, Curve, curves, read, table
from symoptim.support.plotting import AMBER, BLUE, GREEN, ORANGE, PURPLE, SKY, pyplot, save_png

PICTURE = Path(__file__).parent.parent / "docs" / "sensitivity.png"
STARTS = {BALANCED: "balanced start", BADLY_SCALED: "badly scaled start"}
COLORS = {
    "sgd": ORANGE,
    "sm": GREEN,
    "un": AMBER,
    "full": BLUE,
    "geometric": SKY,
    "adamw": PURPLE,
    "invariant-adamw": "black",
}
INVARIANT = {"full", "geometric", "invariant-adamw"}
"""They are drawn with full lines, the others dashed."""
STRIP = 0.24
"""Share of a panel, at its top, where crosses stand for runs that diverged."""


def draw(found: Sequence[Curve], path: Path) -> Path:
    """Draw a row per start and a column per task, loss against rate.

    Args:
        found: the curves.
        path: of the picture.

    Returns:
        The file.
    """
    names = list(dict.fromkeys(curve.task for curve in found))
    figure, grid = pyplot().subplots(
        len(STARTS),
        len(names),
        figsize=(4.1 * len(names), 7.6),
        sharex=True,
        sharey="col",
        layout="constrained",
        squeeze=False,
    )
    for row, spread in zip(grid, STARTS, strict=True):
        for axes, name in zip(row, names, strict=True):
            _draw_panel(axes, [c for c in found if (c.task, c.spread) == (name, spread)])
            _leave_room(axes, [c for c in found if c.task == name and c.spread in STARTS])
            axes.set_title(f"{name}: {STARTS[spread]}", fontsize=10.5, loc="left")
        row[0].set_ylabel("loss after 200 steps")
    for axes in grid[-1]:
        axes.set_xlabel("rate")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(TITLES), frameon=False)
    return save_png(figure, path.with_suffix(""))


def _draw_panel(axes: Any, found: Sequence[Curve]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for curve in found:
        _draw_curve(axes, curve)
        place = list(TITLES).index(curve.update)
        _draw_crosses(axes, curve, 1 - STRIP * (place + 0.7) / len(TITLES))
    axes.fill_between([0, 1], 1 - STRIP, 1, transform=axes.transAxes, color="0.94", linewidth=0, zorder=0)
    axes.text(0.3, 1 - STRIP / 2, "diverged", transform=axes.transAxes, va="center", fontsize=8.5)
    axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.grid(alpha=0.2)


def _leave_room(axes: Any, found: Sequence[Curve]) -> None:
    """Limits such that all losses are below the strip, and numbers there alone."""
    losses = [loss for curve in found for point in curve.points for loss in point.losses]
    low, high = 0.93 * min(losses), 1.05 * max(losses)
    axes.set_ylim(low, high * (high / low) ** (STRIP / (1 - STRIP)))
    digits = "2345" if high / low < 5 else "235"
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < high else "")
    axes.yaxis.set_minor_formatter(
        lambda value, _: f"{value:g}" if value < high and f"{value:g}"[-1] in digits else ""
    )


def _draw_curve(axes: Any, curve: Curve) -> None:
    """A line through the means, and a band from the lowest to the highest seed."""
    color, style = COLORS[curve.update], "-" if curve.update in INVARIANT else (0, (4, 1.5))
    for stretch in _stretches(curve):
        rates = [point.rate for point in stretch]
        lows, highs = ([pick(point.losses) for point in stretch] for pick in (min, max))
        axes.fill_between(rates, lows, highs, color=color, alpha=0.15, linewidth=0)
        axes.plot(rates, [p.mean for p in stretch], color=color, linestyle=style, linewidth=1.7, zorder=3)
        axes.plot(rates[-1:], [stretch[-1].mean], ".", color=color)
    axes.plot([], [], color=color, linestyle=style, linewidth=1.7, label=TITLES[curve.update])


def _draw_crosses(axes: Any, curve: Curve, height: float) -> None:
    """A cross at every rate at which any seed diverged, at a height of its own for every update."""
    for point in curve.points:
        if not point.losses:
            axes.plot(
                point.rate,
                height,
                "x",
                color=COLORS[curve.update],
                markersize=4.5,
                transform=axes.get_xaxis_transform(),
            )


def _stretches(curve: Curve) -> list[list[Any]]:
    """Points of neighboring rates that did not diverge."""
    found: list[list[Any]] = [[]]
    for point in curve.points:
        if point.losses:
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]


def main() -> None:
    """Print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS, help="what sensitivity.py wrote")
    parser.add_argument("--out", type=Path, default=PICTURE, help="picture")
    asked = parser.parse_args()
    results = read(asked.results)
    print(table(results))
    print(f"\nwritten: {draw(curves(results), asked.out)}")


if __name__ == "__main__":
    main()
