"""How far quantities that gradient flow conserves have drifted along training runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from symoptim.support.plotting import AMBER, BLUE, GREEN, ORANGE, PURPLE, SKY, pyplot, save

Curve = tuple[Sequence[int], Sequence[float], Sequence[float]]
"""Steps, drift of the middle quantity, drift of the one that drifts most: ``ConservedQuantities.curve()``."""


def draw_drift(runs: Mapping[str, Curve], path: Path | str) -> list[Path]:
    """Draw the drift of one or several runs: a line for the middle quantity, a dotted one for the largest.

    Args:
        runs: curves by the name that goes into the legend.
        path: of the files, without ending.

    Returns:
        The files, PNG and SVG.
    """
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    colors = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER)
    for number, (name, (steps, median, largest)) in enumerate(runs.items()):
        color = colors[number % len(colors)]
        axes.plot(steps, _positive(median), color=color, label=name)
        axes.plot(steps, _positive(largest), color=color, linestyle=":")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("relative drift: median, largest (dotted)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return save(figure, Path(path))


def _positive(values: Sequence[float]) -> list[float]:
    """Zeros have no place on a logarithmic axis.

    >>> _positive([0.0, 0.5])
    [nan, 0.5]
    """
    return [value if value > 0 else float("nan") for value in values]
