"""What a step costs by number of tensors and by their size: flat as long as overhead decides, then bandwidth.

    python benchmarks/step_sweep.py [--device cuda] [--momentum 0.9] [--out FILE.jsonl]
    python benchmarks/step_sweep.py --picture FILE.jsonl ...

All tensors of a case are square matrices of one size, from 16 x 16 on, as many as fit the limit. Check, clock
and records are those of ``symoptim bench``: what the file has from this machine with this code is not
repeated. The picture goes beside the first file: a panel for every optimizer, a line for every number of
tensors, dashes for the bytes that have to be moved over the bandwidth of a copy.
"""

import argparse
from pathlib import Path

import torch

import rivals
from symoptim.bench.cases import Case, Weight
from symoptim.bench.measure import Budget
from symoptim.bench.optimizers import contestants_named
from symoptim.bench.records import Journal, Step, read_steps
from symoptim.bench.run import Plan, carry_out, session_of
from symoptim.bench.tables import describe, places
from symoptim.support.devices import device_named
from symoptim.support.plotting import pyplot, save_png

COUNTS = (1, 16, 256, 4096)
SIDES = (16, 64, 256, 1024, 4096, 16384)
LIMITS = {"cpu": 2**26, "cuda": 2**30}
"""Elements of the largest case."""
COMPARED = ("sgd-fused", "sgd-foreach", "sm-fused", "un-fused", "un-reference", "geoopt")


class Printer:
    """Prints every case as it begins."""

    def __init__(self) -> None:
        """Start before the first case."""
        self.case = ""

    def expect(self, amount: float) -> None:
        """Do nothing: there is no bar."""

    def done(self, amount: float, words: str) -> None:
        """Print the case, once."""
        del amount
        case = words.partition(",")[0]
        if case != self.case:
            self.case = case
            print(case, flush=True)


def cases(limit: int) -> tuple[Case, ...]:
    """All numbers and sizes that fit."""
    return tuple(
        Case(
            name=f"{count}x{side}",
            title=f"{count} of {side} x {side}",
            weights=(Weight((side, side)),) * count,
        )
        for count in COUNTS
        for side in SIDES
        if count * side**2 <= limit
    )


def draw(steps: list[Step], path: Path, momentum: float) -> Path:
    """A panel for every optimizer; the same axes for all."""
    plt = pyplot()
    measured = [s for s in steps if s.seconds is not None and s.line["momentum"] == momentum]
    names = {step.line["contestant"]: step.line["title"] for step in measured}
    size = (3.1 * len(names), 3.4)
    figure, (panels,) = plt.subplots(
        1, len(names), figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    for axes, (name, title) in zip(panels, names.items(), strict=True):
        mine = [step.line for step in measured if step.line["contestant"] == name]
        for count in sorted({line["tensors"] for line in mine}):
            points = sorted(
                (li["elements"], 1e3 * li["seconds"]["p50"]) for li in mine if li["tensors"] == count
            )
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=f"{count:,}")
        floor = sorted((line["elements"], 1e3 * line["floor"]) for line in mine)
        axes.plot(*zip(*floor, strict=True), color="0.4", linestyle="--", linewidth=1)
        axes.set(title=title, xscale="log", yscale="log", xlabel="parameters in all")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("ms of a step")
    panels[0].set_ylim(bottom=300 * min(step.line["seconds"]["p50"] for step in measured))
    panels[0].legend(title="tensors", fontsize=7, title_fontsize=7)
    figure.suptitle(f"{describe(measured)}, momentum {momentum:g}", fontsize=9)
    return save_png(figure, path)


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=3.0, help="of turns, for every case")
    parser.add_argument("--optimizers", nargs="+", default=COMPARED)
    parser.add_argument("--out", type=Path, default=Path("results/step_sweep.jsonl"))
    parser.add_argument("--picture", type=Path, nargs="+", help="measure nothing, draw these")
    asked = parser.parse_args()
    files: list[Path] = asked.picture or [asked.out]
    if not asked.picture:
        rivals.register()
        torch.set_num_threads(1)
        device = device_named(asked.device)
        plan = Plan(
            cases=cases(LIMITS[device.type]),
            contestants=contestants_named(tuple(asked.optimizers), compiled=False),
            momenta=(asked.momentum,),
            dtypes=("float32",),
            device=device,
            budget=Budget(turns=asked.turns, seconds=asked.seconds),
        )
        carry_out(plan, Journal(asked.out, session_of(device)), Printer())
    for number, steps in enumerate(places(read_steps(files)).values()):
        name = files[0].with_suffix("")
        picture = name.with_name(name.name + f"-{number}" * bool(number))
        print(f"written: {draw(steps, picture, asked.momentum)}")


if __name__ == "__main__":
    main()
