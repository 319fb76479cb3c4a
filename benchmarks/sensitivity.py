"""How much the learning rate and the scaling of the start matter: loss after a fixed number of steps.

    SYMOPTIM_DATA=FOLDER python benchmarks/sensitivity.py      MNIST, 37 minutes on a busy core
    python benchmarks/sensitivity.py --quick                   a minute or two, digits for MNIST
    python benchmarks/sensitivity_figure.py                    the table and docs/sensitivity.png

Every update trains every task of ``sensitivity_tasks.py`` at rates over five or six decades, two a decade,
from three seeds and two starts: the network's own initialization, and the same weights moved by a random
element of the whole group that ``discover`` finds, scales from 1/30 to 30: the same function. The
rate is constant, there is neither momentum (but Adam's own) nor weight decay; seeds decide weights, batches
and scales. The loss is the mean cross-entropy over a fixed part of the training set, in training mode and in
float64. A run has diverged if its loss is not finite or above the initial one. Runs that the file has already
are not repeated.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

import symoptim
from measuring import Log
from sensitivity_table import BADLY_SCALED, BALANCED, RESULTS
from sensitivity_tasks import Task, tasks
from symoptim import FullMetricSGD, Geometric, ScaledSGD, SymmetrySpec, UnitNormSGD, invariant, param_groups
from symoptim.bench.records import read_lines

UPDATES: dict[str, Callable[[nn.Module, SymmetrySpec, float], Optimizer]] = {
    "sgd": lambda model, _, rate: SGD(model.parameters(), lr=rate),
    "sm": lambda model, _, rate: ScaledSGD(param_groups(model), lr=rate),
    "un": lambda model, _, rate: UnitNormSGD(param_groups(model), lr=rate, normalize=True),
    "full": lambda model, spec, rate: FullMetricSGD(model, spec, lr=rate),
    "geometric": lambda model, spec, rate: FullMetricSGD(model, spec, lr=rate, gauge=Geometric()),
    "adamw": lambda model, _, rate: AdamW(model.parameters(), lr=rate, weight_decay=0.0),
    "invariant-adamw": lambda model, spec, rate: invariant(
        AdamW, model, spec=spec, lr=rate, weight_decay=0.0
    ),
}


@dataclass(frozen=True, slots=True)
class Run:
    """All that a result depends on."""

    task: str
    spread: float
    """Weights of the start are moved by scales from 1 / spread to spread."""
    update: str
    rate: float
    seed: int
    steps: int


def rates(update: str, *, per_decade: int) -> list[float]:
    """Rates to try: the same for all that are like SGD, and for all that are like Adam."""
    low, high = (-5, 0) if "adam" in update else (-5, 1)
    return [round(10 ** (n / per_decade), 12) for n in range(per_decade * low, per_decade * high + 1)]


def plan(asked: argparse.Namespace, chosen: Sequence[Task]) -> list[Run]:
    """All runs; those of one seed first, tasks taking turns."""
    per_decade = 1 if asked.quick else 2
    tried = [(update, rate) for update in asked.updates for rate in rates(update, per_decade=per_decade)]
    return [
        Run(task.title, spread, update, rate, seed, asked.steps)
        for seed in range(asked.seeds)
        for update, rate in tried
        for task in chosen
        if task.unit_norm or update != "un"
        for spread in asked.spreads
    ]


def train(run: Run, task: Task, spec: SymmetrySpec) -> dict[str, Any]:
    """Do a run.

    Args:
        run: which one.
        task: what it trains.
        spec: the symmetries of that.

    Returns:
        Losses before and after, the latter None if it is not finite, and whether it has diverged.
    """
    model = task.start(run.seed)
    spec.rescale_(model, spec.random(seed=run.seed, spread=math.log(run.spread)))
    judged, classes = task.draw(task.judged, torch.Generator().manual_seed(-1))
    with torch.no_grad():
        initial = cross_entropy(model(judged), classes).item()
    optimizer = UPDATES[run.update](model, spec, run.rate)
    finite = descend(model, optimizer, task, run)
    with torch.no_grad():
        final = cross_entropy(model(judged), classes).item()
    finite &= math.isfinite(final)
    return {
        "initial": initial,
        "loss": final if finite else None,
        "diverged": not (finite and final <= initial),
    }


def descend(model: nn.Module, optimizer: Optimizer, task: Task, run: Run) -> bool:
    """Take the steps of a run; stop at a loss that is not finite, and return whether there was none."""
    generator = torch.Generator().manual_seed(run.seed)
    for _ in range(run.steps):
        inputs, targets = task.draw(task.batch, generator)
        loss = cross_entropy(model(inputs), targets)
        if not loss.isfinite():
            return False
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return True


def done(path: Path) -> set[Run]:
    """Runs that a file has results of."""
    if not path.exists():
        return set()
    lines = read_lines(path)  # without one that was not finished
    return {Run(**{name: line[name] for name in Run.__slots__}) for line in lines if "task" in line}


def work(runs: list[Run], chosen: list[Task], path: Path) -> None:
    """Do the runs that are not done, a line of JSON for each, behind one that says where they come from."""
    finished = done(path)
    left = [run for run in runs if run not in finished]
    if not left:
        return
    by_title = {task.title: task for task in chosen}
    specs = {
        task.title: symoptim.discover(task.start(0), task.draw(task.batch, torch.Generator())[:1])
        for task in chosen
    }
    log = Log(path, "run")
    with _progress() as progress:
        bar = progress.add_task(f"{len(finished)} runs are done already", total=len(left))
        for run in left:
            result = train(run, by_title[run.task], specs[run.task])
            log.add(asdict(run) | result)
            progress.update(bar, advance=1, description=f"{run.task}: {run.update}, rate {run.rate:.3g}")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed}/{task.total} runs"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )


def main() -> None:
    """Do what is not done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST; by default SYMOPTIM_DATA, or digits")
    parser.add_argument("--out", type=Path, help=f"file of the results, {RESULTS.name} or one of results/")
    parser.add_argument(
        "--tasks", nargs="+", default=["arch1", "arch2", "resnet", "gpt"], help="some of them"
    )
    parser.add_argument("--updates", nargs="+", choices=UPDATES, default=list(UPDATES), help="some of them")
    parser.add_argument(
        "--spreads", nargs="+", type=float, default=[BALANCED, BADLY_SCALED], help="of scales"
    )
    parser.add_argument("--steps", type=int, help="of every run")
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--quick", action="store_true", help="30 steps, one seed, one rate a decade")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.steps = asked.steps or (30 if asked.quick else 200)
    asked.seeds = asked.seeds or (1 if asked.quick else 3)
    available = tasks(asked.data_dir)
    chosen = [available[name] for name in asked.tasks]
    name = "quick" if asked.quick else f"{asked.steps}_steps"
    path = asked.out or (RESULTS if asked.steps == 200 else Path("results") / f"sensitivity_{name}.jsonl")
    work(plan(asked, chosen), chosen, path)
    print(f"all runs are in {path}")


if __name__ == "__main__":
    main()
