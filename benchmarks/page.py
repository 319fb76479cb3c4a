"""Write a page of tables and pictures from records, as in docs/.

    python benchmarks/page.py benchmarks/results/step_cpu_202611.jsonl --out docs/speed-cpu
    python benchmarks/page.py FILE.jsonl --out docs/speed --cases resnet50 --optimizers sm-fused --pictures

Nothing is measured, and no torch is needed. Pictures are bars on logarithmic axes with the floor as a line,
one for every place figures are from.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symoptim.bench.records import Step, only, read_steps
from symoptim.bench.tables import describe, markdown, milliseconds, places, tables, titles_of
from symoptim.support.files import write_files
from symoptim.support.plotting import BLUE, GREEN, ORANGE, PURPLE, SKY, pyplot, save


def text_of(steps: Sequence[Step], name: str) -> str:
    """All tables as Markdown, with links to the pictures.

    Args:
        steps: what was measured.
        name: of the page and of the pictures, without ending.

    Returns:
        The text.
    """
    texts = [
        "# What a step costs",
        "Written by `python benchmarks/page.py`; docs/speed.md says how it is measured.",
    ]
    for number, mine in enumerate(places(steps).values(), start=1):
        picture = f"{name}.png" if number == 1 else f"{name}-{number}.png"
        texts += [f"## {describe(mine)}", f"![The same as bars, with the floor as a line]({picture})"]
        texts += map(markdown, tables(mine))
    return "\n\n".join(texts) + "\n"


_COLORS = {"sgd": ORANGE, "adamw": PURPLE, "sm": BLUE, "un": GREEN, "full": SKY}
"""By the first word of a contestant's name; others are gray."""


def draw(steps: Sequence[Step], path: Path) -> list[Path]:
    """Draw all cases of one place: a row for each, a column for every momentum.

    Args:
        steps: what was measured, on one machine in one precision.
        path: of the files, without ending.

    Returns:
        The files.
    """
    plt = pyplot()
    momenta = sorted({step.line["momentum"] for step in steps})
    cases = titles_of([step for step in steps if step.seconds is not None], "case", "case_title")
    bars = max((len(_shown(steps, case, momentum)) for case in cases for momentum in momenta), default=1)
    figure, grid = plt.subplots(
        max(len(cases), 1),
        len(momenta),
        figsize=(5.2 * len(momenta) + 1, (0.9 + 0.2 * bars) * max(len(cases), 1) + 0.6),
        layout="constrained",
        squeeze=False,
    )
    for row, case in enumerate(cases):
        for column, momentum in enumerate(momenta):
            heading = "no momentum" if not momentum else f"momentum {momentum:g}"
            _panel(grid[row, column], _shown(steps, case, momentum), f"{cases[case]}, {heading}")
    key = (
        "logarithmic axes, each with a start of its own; whiskers are the 20th to 80th percentile, "
        "dashes the bytes over the bandwidth of a copy"
    )
    figure.suptitle(f"Milliseconds of an optimizer's step: {describe(steps)}\n{key}", fontsize=10)
    return save(figure, path)


def _shown(steps: Sequence[Step], case: str, momentum: float) -> list[Step]:
    mine = [s for s in steps if (s.line["case"], s.line["momentum"]) == (case, momentum)]
    return [step for step in mine if step.seconds is not None]


def _panel(axes: Any, steps: list[Step], title: str) -> None:
    if not steps:
        axes.set_axis_off()
        return
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    heights = range(len(steps))
    quantiles = [step.line["seconds"] for step in steps]
    medians = [1e3 * one["p50"] for one in quantiles]
    low = [1e3 * (one["p50"] - one["p20"]) for one in quantiles]
    high = [1e3 * (one["p80"] - one["p50"]) for one in quantiles]
    axes.barh(heights, medians, color=[_color(step) for step in steps], height=0.7)
    axes.errorbar(medians, heights, xerr=[low, high], fmt="none", ecolor="0.3", elinewidth=1)
    floor = 1e3 * steps[0].line["floor"]
    axes.axvline(floor, color="0.3", linestyle="--", linewidth=1)
    axes.set_yticks(list(heights), [step.line["title"] for step in steps])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.5 * min(floor, *medians), 2.2 * max(medians))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.xaxis.set_minor_formatter("")
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # the floor may be where a figure is
    for height, median, above in zip(heights, medians, high, strict=True):
        words = milliseconds(median / 1e3)
        axes.text(1.06 * (median + above), height, words, va="center", fontsize=7, bbox=behind)


def _color(step: Step) -> str:
    return _COLORS.get(step.line["contestant"].partition("-")[0], "0.6")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+", help="what symoptim bench has written")
    parser.add_argument("--out", type=Path, required=True, help="page and pictures, without ending")
    parser.add_argument("--cases", type=lambda text: text.split(","), help="only these, separated by commas")
    parser.add_argument("--optimizers", type=lambda text: text.split(","), help="only these, and fused SGD")
    parser.add_argument("--pictures", action="store_true", help="write no page")
    asked = parser.parse_args()
    steps = only(read_steps(asked.records), asked.cases, asked.optimizers)
    written: list[Path] = []
    if not asked.pictures:
        written = write_files(asked.out.parent, {f"{asked.out.name}.md": text_of(steps, asked.out.name)})
    for number, mine in enumerate(places(steps).values(), start=1):
        name = asked.out.name if number == 1 else f"{asked.out.name}-{number}"
        written += draw(mine, asked.out.with_name(name))
    print(f"written: {', '.join(map(str, written))}")


if __name__ == "__main__":
    main()
