"""What a step of a run costs in an ensemble: against a DataLoader loop, and against the number of runs.

    python benchmarks/ensemble.py [--device cuda] [--images random] [--out FILE.jsonl]

Networks are the paper's of two layers, batches of 100. Images are MNIST's, for on a CPU pixels that are zero
cost nothing; or they are of 784 random pixels, none of them zero, as always on CUDA. Timings are reported
only if steps of the ensemble, in float64 and in float32, match autograd's in float64. On the CPU: one thread,
process time, all take turns; the loop is one network with a ``DataLoader`` over a ``TensorDataset``,
autograd and ``torch.optim.SGD``, fused or not, whichever is faster. On CUDA: time of recorded steps.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ensemble_figure import draw
from measuring import Log, seconds
from symoptim.ensemble.images import Batch, Split
from symoptim.ensemble.run import Constant, FixedEpochs, Run
from symoptim.ensemble.run_group import AutogradNetwork, RunGroup
from symoptim.ensemble.trainer import Trainer
from symoptim.models import arch1, arch2
from symoptim.paper.data.mnist import load_mnist
from symoptim.support.devices import full_float32

NETWORKS: dict[str, Callable[[], nn.Module]] = {"Arch1": lambda: arch1(2), "Arch2": lambda: arch2(2)}
UPDATES = ("b-sgd", "sm", "un")
BATCH = 100
TRAIN = 10_000
PAPERS = [(update, seed) for update in UPDATES for seed in range(10) for _ in range(2)]
"""What the paper has of a shape: ten repeats of every update with two schedules, which share their images."""
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
TURNS = 25
ALLOWED = {torch.float64: 1e-12, torch.float32: 1e-4}
"""Errors of a run's weights after three steps, relative to the largest."""
KINK = 0.05
"""Error of one run with an image on the other side of a kink: biases begin at zero, and are small then."""


def random_images() -> Split:
    """Images without a pixel that is zero."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(TRAIN + 100, 784, generator=generator)
    labels = torch.randint(10, (TRAIN + 100,), generator=generator)
    return Split(pixels, labels, pixels[:100], labels[:100])


def mnist_images(directory: Path | None) -> Split:
    """As many of MNIST's."""
    data = load_mnist(directory)
    pixels, labels = data.train_images[: TRAIN + 100].clone(), data.train_labels[: TRAIN + 100].clone()
    return Split(pixels, labels, data.test_images[:100], data.test_labels[:100])


def in_precision(data: Split, dtype: torch.dtype) -> Split:
    """The same images in another precision."""
    return data._replace(train_images=data.train_images.to(dtype), test_images=data.test_images.to(dtype))


def trainer_of(network: str, planned: list[tuple[str, int]], data: Split, device: torch.device) -> Trainer:
    """Runs of a network by update and seed."""
    runs = [
        Run(update=update, rate=1e-4, schedule=Constant(), stopping=FixedEpochs(maximum=1), seed=seed,
            train=TRAIN, validation=100)
        for update, seed in planned
    ]  # fmt: skip
    dtype = data.train_images.dtype
    trainer = Trainer(runs, lambda: NETWORKS[network]().to(dtype), data, batch=BATCH, device=device)
    trainer.images.shuffle(1)
    return trainer


def mixed(count: int) -> list[tuple[str, int]]:
    """So many runs of all updates, each of a seed of its own."""
    return sorted((UPDATES[seed % len(UPDATES)], seed) for seed in range(count))


def checked_error(network: str, data: Split, device: torch.device, dtype: torch.dtype) -> float:
    """Largest error of weights after three steps, against autograd on the CPU in float64.

    In float32 one of the six runs may be off by percents, as one of autograd's own may be: rounding decides
    on which side of a kink an image falls. Every update has two runs.
    """
    exact, tried = (
        trainer_of(network, PAPERS[::10], in_precision(data, precision), where)
        for where, precision in ((torch.device("cpu"), torch.float64), (device, dtype))
    )
    everything, here = torch.arange(6), slice(0, 6)
    reference = RunGroup(
        here, AutogradNetwork(exact.stack), exact.optimizers, exact.images, exact.totals, everything
    )
    for start in range(0, 3 * BATCH, BATCH):
        reference.step(Batch(exact.images.order, torch.tensor([start]), torch.arange(BATCH)))
    tried._step_on(BATCH)(3)
    errors = torch.zeros(6, dtype=torch.float64)
    for name, weight in tried.stack.parameters.items():
        true = exact.stack.parameters[name].detach()
        off = (true - weight.detach().cpu()).abs().flatten(1).amax(1)
        errors = torch.maximum(errors, off / true.abs().max())
    *most, worst = errors.sort().values.tolist()  # NaN is the worst
    if not (max(most) < ALLOWED[dtype] and worst < (KINK if dtype == torch.float32 else ALLOWED[dtype])):
        sys.exit(f"not timed, for steps of {network} in {dtype} are wrong by {errors.tolist()}")
    return worst


def loop(network: str, data: Split, *, fused: bool) -> Iterator[None]:
    """Steps of an ordinary training loop."""
    model = NETWORKS[network]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=fused)
    loader = DataLoader(TensorDataset(data.train_images, data.train_labels), batch_size=BATCH, shuffle=True)
    while True:
        for pixels, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels), labels, reduction="sum").backward()
            optimizer.step()
            yield


def compare(network: str, data: Split) -> dict[str, tuple[float, float]]:
    """Milliseconds per step and run, of loops and of ensembles, and how many times as fast as a loop that is.

    They take turns, and are compared with the faster loop of the same turn: other work on the machine slows
    down neighbors alike. Both are medians.
    """
    works: dict[str, tuple[Callable[[], object], int]] = {}
    for label, fused in (("loop", False), ("loop, fused SGD", True)):
        steps = loop(network, data, fused=fused)
        works[label] = (lambda steps=steps: [next(steps) for _ in range(10)], 10)
    for update in UPDATES:
        planned = [(update, seed) for seed in range(len(PAPERS))]
        trainer = trainer_of(network, planned, data, torch.device("cpu"))
        works[update] = (trainer._step_on(BATCH), len(planned))
    trainer = trainer_of(network, PAPERS, data, torch.device("cpu"))
    works["the paper's runs"] = (trainer._step_on(BATCH), len(PAPERS))
    times: dict[str, list[float]] = {label: [] for label in works}
    for turn in range(TURNS + 1):
        for label, (work, count) in works.items():
            took = seconds(work) / count
            if turn:  # the first makes room
                times[label].append(1e3 * took)
    fastest = [min(pair) for pair in zip(times["loop"], times["loop, fused SGD"], strict=True)]
    return {
        label: (
            statistics.median(taken),
            statistics.median(loop / mine for loop, mine in zip(fastest, taken, strict=True)),
        )
        for label, taken in times.items()
    }


def step_time(network: str, count: int, data: Split, device: torch.device) -> float:
    """Milliseconds of a step of ``count`` runs, all updates among them."""
    trainer = trainer_of(network, mixed(count), data, device)
    steps = trainer._step_on(BATCH)
    with full_float32():
        if device.type == "cpu":
            return 1e3 * min(seconds(steps) for _ in range(5 if count > 100 else 15))
        steps(30)  # which records
        taken: list[float] = []
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            steps(25)
            torch.cuda.synchronize()
            taken.append((time.perf_counter() - began) / 25)
    return 1e3 * min(taken)


def main() -> None:
    """Measure, print, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", type=torch.device, help="cpu or cuda")
    parser.add_argument(
        "--out", type=Path, help="write the figures there, as JSON lines, and a picture beside"
    )
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="runs of the largest ensemble")
    parser.add_argument(
        "--images", choices=("mnist", "random"), help="by default mnist on a CPU, else random"
    )
    parser.add_argument(
        "--data-dir", type=Path, help="where MNIST is; by default as for `symoptim reproduce`"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    shown = asked.images or ("mnist" if asked.device.type == "cpu" else "random")
    data = mnist_images(asked.data_dir) if shown == "mnist" else random_images()
    lines = list[dict[str, Any]]()
    for network in NETWORKS:
        for dtype in ALLOWED:  # CUDA has kernels in float32 only, and these are what is timed
            error = checked_error(network, data, asked.device, dtype)
            print(f"{network}: steps in {dtype} agree with autograd in float64 to {error:.0e}")
    for network in NETWORKS if asked.device.type == "cpu" else ():
        for label, (taken, times) in compare(network, data).items():
            print(f"{network} {label:18} {taken:6.3f} ms per step and run, {times:4.1f} times as fast")
            lines.append({"network": network, "what": label, "milliseconds": taken, "times": times})
    for network in NETWORKS:
        for count in (count for count in COUNTS if count <= asked.most):
            taken = step_time(network, count, data.to(asked.device), asked.device)
            print(
                f"{network} {count:5} runs: {taken:8.3f} ms a step, {taken / count:.4f} per run", flush=True
            )
            lines.append({"network": network, "runs": count, "milliseconds": taken})
    if asked.out:
        asked.out.unlink(missing_ok=True)
        Log(asked.out, "ensemble", asked.device, images=shown).add(*lines)
        print(f"written: {asked.out}, {draw([asked.out], asked.out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
