"""Draw what ``ensemble.py`` found: the time of a step against the number of runs.

python benchmarks/ensemble_figure.py FILE.jsonl ... --out PICTURE.png
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

COLORS = {"Arch1": "#e69f00", "Arch2": "#0072b2"}


def draw(results: Sequence[Path], path: Path) -> Path:
    """Draw a panel per file, milliseconds of a step of all runs over their number.

    Args:
        results: files of figures.
        path: of the picture.

    Returns:
        The picture.
    """
    from symoptim.support.plotting import pyplot, save_png

    plt = pyplot()
    size = (5.0 * len(results), 3.6)
    figure, panels = plt.subplots(
        1, len(results), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for panel, file in zip(panels[0], results, strict=True):
        about, *lines = (json.loads(line) for line in file.read_text().splitlines())
        for network, color in COLORS.items():
            points = [
                (x["runs"], x["milliseconds"]) for x in lines if x["network"] == network and "runs" in x
            ]
            panel.plot(*zip(*points, strict=True), "o-", color=color, label=f"{network}, 2 layers")
        panel.set(xscale="log", yscale="log", xlabel="runs trained together")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter("{x:g}")
        about = about.get("provenance", about)  # as it was called in 2026-11
        panel.set_title(about.get("machine") or about.get("device", "CPU, one thread"))
        panel.legend()
    panels[0][0].set_ylabel("ms per step of all runs")
    return save_png(figure, path)


def main() -> None:
    """Draw the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help="files of figures")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    asked = parser.parse_args()
    print(f"written: {draw(asked.results, asked.out)}")


if __name__ == "__main__":
    main()
