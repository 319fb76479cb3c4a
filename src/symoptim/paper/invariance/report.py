"""The report on invariance: the table of gaps, and the picture of the README."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from symoptim.paper.invariance.pairs import PHASE, Pair, pairs_of, to_csv
from symoptim.paper.records.runs import RecordedExperiment, read_experiment, read_runs, reading
from symoptim.paper.report.html import Report
from symoptim.paper.table2.cells import ARCHITECTURES
from symoptim.support.files import write_files
from symoptim.support.plotting import BLUE, ORANGE, Axes, pyplot, save

RECORDS = "invariance.sqlite"
"""Its records may stand beside those of another experiment."""
CAPTION = "One network, one function, two scalings of its weights; same data, same batches."
NUMBERS = "Training loss per epoch; the numbers are the largest relative difference of the two curves."
TITLES = {"b-sgd": "plain SGD", "sm": "SM: symoptim.ScaledSGD", "un": "UN: symoptim.UnitNormSGD"}


class Summary(NamedTuple):
    """An experiment with its pairs of curves."""

    experiment: RecordedExperiment
    pairs: list[Pair]


def summarize(records: Path) -> Summary:
    """Read a records file."""
    with reading(records) as connection:
        return Summary(read_experiment(connection, records), pairs_of(read_runs(connection, PHASE)))


def write(folder: Path, records: Path) -> Report:
    """Write the curves and their picture."""
    summary = summarize(records)
    config = summary.experiment.configuration
    spread, rate = config["protocol"]["spread"], config["protocol"]["rate"]
    scales = f"Scales from 1/{spread:g} to {spread:g}; {config['data']}, rate {rate:g}, float64."
    caption = f"{CAPTION} {scales} {NUMBERS}"
    paths = write_files(folder, {"invariance.csv": to_csv(summary.pairs)})
    if summary.pairs:
        paths += draw_pairs(summary.pairs, folder / "invariance", caption=caption)
    return Report(summary.experiment.name, summary, paths)


def draw_pairs(pairs: Sequence[Pair], path: Path, *, caption: str = f"{CAPTION} {NUMBERS}") -> list[Path]:
    """Draw all panels, an architecture to a row, and save the picture."""
    plt = pyplot()
    rows = [[p for p in pairs if p.architecture == a] for a in dict.fromkeys(p.architecture for p in pairs)]
    widest = max(map(len, rows))
    figure, grid = plt.subplots(
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
    return save(figure, path)


def _draw_panel(axes: Axes, pair: Pair) -> None:
    epochs = range(1, len(pair.balanced) + 1)
    axes.plot(epochs, pair.balanced, color=BLUE, linewidth=5, alpha=0.45, solid_capstyle="round")
    axes.plot(epochs, pair.rescaled, color=ORANGE, linewidth=1.8, linestyle=(0, (4, 2)))
    largest = max(pair.gaps)
    axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    title = f"{ARCHITECTURES[pair.architecture]}, {TITLES.get(pair.update, pair.update)}"
    axes.set_title(title, fontsize=10, loc="left")
    axes.text(0.97, 0.93, _gap_text(largest), transform=axes.transAxes, ha="right", va="top")
    axes.grid(alpha=0.25)


def _gap_text(gap: float) -> str:
    """How far two curves are apart, in words.

    >>> _gap_text(0.0), _gap_text(3e-16), _gap_text(0.35), _gap_text(4e8)
    ('coincide exactly', 'coincide to 3e-16', 'split by 35%', 'split by a factor of 4e+08')
    """
    if gap < 1e-6:
        return f"coincide to {gap:.0e}" if gap else "coincide exactly"
    return f"split by {gap:.0%}" if gap < 10 else f"split by a factor of {gap:.0e}"


def _explain(axes: Axes, caption: str) -> None:
    """Use a free cell of the grid for the legend."""
    axes.axis("off")
    axes.plot([], [], color=BLUE, linewidth=5, alpha=0.45, label="balanced weights")
    axes.plot([], [], color=ORANGE, linewidth=1.8, linestyle=(0, (4, 2)), label="the same weights, rescaled")
    axes.legend(loc="upper left", frameon=False, fontsize=10)
    axes.text(
        0.03,
        0.66,
        textwrap.fill(caption, 42),
        transform=axes.transAxes,
        va="top",
        fontsize=10,
        linespacing=1.4,
    )
