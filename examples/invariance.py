"""Draw the picture of the README: one network, two scalings of its weights, two loss curves.

    python examples/invariance.py --out results/invariance.png      some seconds on a laptop

Both curves start from the same function and see the same batches. Plain SGD trains the two scalings
differently; the updates of the paper do not see the scaling, so their curves lie on each other.
"""

import argparse
import copy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from symoptim import models
from symoptim.data.digits import load_digits
from symoptim.data.split import Split
from training import UPDATES, train

EPOCHS = 25
SPREAD = 4.0  # scales between 1/4 and 4: far enough for SGD to split, near enough for it to train at all
LR = 1e-3
BLUE, ORANGE = "#0072B2", "#D55E00"  # Okabe and Ito's palette, safe for color-blind eyes
PANELS = {"Arch1": ("SGD", "SM"), "Arch2": ("SGD", "SM", "UN")}
WORDS = {
    "SGD": "plain SGD",
    "SM": "SM: symoptim.ScaledSGD",
    "UN": "UN: symoptim.UnitNormSGD",
}


def network(architecture: str) -> models.PairwiseNetwork:
    """A 2-layer network for digits; batch normalization with an eps too small to be felt."""
    torch.manual_seed(0)
    if architecture == "Arch1":
        return models.arch1(2, inputs=64).double()
    return models.arch2(2, inputs=64, eps=1e-30).double()


def curves(architecture: str, update: str, data: Split) -> tuple[list[float], list[float]]:
    """Mean loss of every epoch from the balanced start and from a rescaling of it."""
    balanced = network(architecture)
    rescaled = copy.deepcopy(balanced)
    rescaled.rescale_(rescaled.random_scales(seed=1, low=1 / SPREAD, high=SPREAD))
    make = UPDATES[update]
    both = [list(train(m, make(m, LR), data, epochs=EPOCHS, seed=0)) for m in (balanced, rescaled)]
    return both[0], both[1]


def gap(one: list[float], other: list[float]) -> float:
    """Largest relative difference of two loss curves."""
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def draw(axes: Axes, architecture: str, update: str, data: Split) -> float:
    """Fill one panel; returns the gap of its curves."""
    balanced, rescaled = curves(architecture, update, data)
    epochs = range(1, EPOCHS + 1)
    axes.plot(epochs, balanced, color=BLUE, linewidth=5, alpha=0.45, solid_capstyle="round")
    axes.plot(epochs, rescaled, color=ORANGE, linewidth=1.8, linestyle=(0, (4, 2)))
    difference = gap(balanced, rescaled)
    axes.set_yscale("log")
    axes.set_title(f"{architecture}, {WORDS[update]}", fontsize=10, loc="left")
    verdict = f"coincide to {difference:.0e}" if difference < 1e-6 else f"split by {difference:.0%}"
    axes.text(0.97, 0.93, verdict, transform=axes.transAxes, ha="right", va="top")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return difference


def explain(axes: Axes) -> None:
    """Use the free cell of the grid for the legend."""
    axes.axis("off")
    axes.plot([], [], color=BLUE, linewidth=5, alpha=0.45, label="balanced weights")
    axes.plot([], [], color=ORANGE, linewidth=1.8, linestyle=(0, (4, 2)), label="the same weights, rescaled")
    axes.legend(loc="upper left", frameon=False, fontsize=10)
    axes.text(
        0.03,
        0.66,
        "One network, one function, two scalings\n"
        f"of its weights (by 1/{SPREAD:g} to {SPREAD:g}); same data,\n"
        f"same batches, rate {LR:g}. Training loss per\n"
        "epoch; the numbers are the largest relative\ndifference of the two curves.",
        transform=axes.transAxes,
        va="top",
        fontsize=10,
        linespacing=1.4,
    )


def main() -> None:
    """Draw all panels and save the picture."""
    parser = argparse.ArgumentParser(description="Loss curves from two scalings of the same network.")
    parser.add_argument("--out", type=Path, default=Path("results/invariance.png"), help="PNG to write")
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)

    data = load_digits(dtype=torch.float64)
    figure, grid = plt.subplots(2, 3, figsize=(11, 5.4), sharex=True, sharey="row", layout="constrained")
    explain(grid[0, 2])
    for row, (architecture, updates) in zip(grid, PANELS.items(), strict=True):
        for axes, update in zip(row, updates, strict=False):
            difference = draw(axes, architecture, update, data)
            print(f"{architecture} {update:>3}: largest relative gap of the two loss curves {difference:.1e}")
        row[0].set_ylabel("training loss")
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    figure.savefig(out, dpi=150)
    print(f"picture: {out}")


if __name__ == "__main__":
    main()
