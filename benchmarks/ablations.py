"""What a change of the kernels costs: optimizer steps of two source trees, taken in turn on one CPU core.

    python benchmarks/ablations.py OLD_SRC NEW_SRC --what "what was removed" --out FILE.jsonl

Each tree has a process of its own with one thread. In every round each takes a step, the first of them
alternating, after a buffer larger than the caches was overwritten; then torch's fused SGD takes one in both.
The clock is process time. Other processes may be at work and a step depends on where its memory lies, so that
lower quartiles over rounds are taken, for several pairs of processes. ``ratio_before`` and ``ratio_after``
are the steps of the two trees over SGD's, ``after_over_before`` their quotient, medians over pairs;
``of_pairs`` has the least and the largest quotient of a pair.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

Shape = tuple[tuple[int, ...], str]
"""A tensor, and the geometry of its filters."""


def resnet50() -> Iterator[Shape]:
    """The 161 tensors of ResNet-50."""

    def convolution(*shape: int) -> Iterator[Shape]:
        yield shape, "rows"
        yield from [(shape[:1], "plain")] * 2

    yield from convolution(64, 3, 7, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from convolution(width, inputs, 1, 1)
            yield from convolution(width, width, 3, 3)
            yield from convolution(4 * width, width, 1, 1)
            if block == 0:
                yield from convolution(4 * width, inputs, 1, 1)
            inputs = 4 * width
    yield from [((1000, 2048), "columns"), ((1000,), "plain")]


def gpt2(layers: int = 6, width: int = 768) -> Iterator[Shape]:
    """Half of GPT-2's blocks, without its embedding."""
    for _ in range(layers):
        for out, inside in ((3, 1), (1, 1), (4, 1), (1, 4)):
            yield from [((out * width, inside * width), "rows"), ((out * width,), "plain")]
        yield from [((width,), "plain")] * 4


CASES: dict[str, Callable[[], Iterator[Shape]]] = {
    "resnet50": resnet50,
    "matrix": lambda: iter([((4096, 4096), "rows")]),
    "tiny": lambda: iter([((32, 32), "rows")] * 1000),
    "gpt2": gpt2,
}
WIDTHS = 1024, 4096, 4096, 1024  # of the network that the full metric is measured on
SCALED, UNIT, FULL = "sm", "un", "full"


def steppers(case: str, update: str, momentum: float) -> dict[str, Callable[[], Any]]:
    """A step of the update, and one of SGD on tensors of the same shapes."""
    import torch

    import symoptim

    torch.manual_seed(0)
    groups: list[dict[str, Any]] = []
    optimizer: torch.optim.Optimizer
    if update == FULL:
        layers = [torch.nn.Linear(*widths) for widths in pairwise(WIDTHS)]
        model = torch.nn.Sequential(*[module for layer in layers for module in (layer, torch.nn.ReLU())][:-1])
        spec = symoptim.discover(model, (torch.rand(2, WIDTHS[0]),))
        optimizer = symoptim.FullMetricSGD(model, spec, lr=1e-12, momentum=momentum, fused=True)
    else:
        for shape, geometry in CASES[case]():
            weight = torch.nn.Parameter(torch.randn(shape) / max(1, *shape[1:], 1) ** 0.5)
            groups.append({"params": [weight], "geometry": geometry})
        kind, options = (
            (symoptim.ScaledSGD, {}) if update == SCALED else (symoptim.UnitNormSGD, {"normalize": True})
        )
        merged = [
            {"params": [w for one in groups if one["geometry"] == g for w in one["params"]], "geometry": g}
            for g in dict.fromkeys(one["geometry"] for one in groups)
        ]
        optimizer = kind(merged, lr=1e-12, momentum=momentum, fused=True, **options)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    sgd = torch.optim.SGD(weights, lr=1e-12, momentum=momentum, fused=True)
    return {"step": optimizer.step, "sgd": sgd.step}


def work() -> None:
    """Answer requests on standard input: set up a case, or time a step."""
    import torch

    torch.set_num_threads(1)
    cold, found = torch.zeros(2**24), {}
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "set":
            found = {}
            found = steppers(arguments[0], arguments[1], float(arguments[2]))
            for step in list(found.values()) * 2:
                step()
            print("ready", flush=True)
        else:
            cold.add_(1)
            begin = time.process_time()
            found[command]()
            print(time.process_time() - begin, flush=True)


class Worker:
    """A process with the package of one source tree."""

    def __init__(self, source: Path) -> None:
        """Start it."""
        environment = os.environ | {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, *words: object) -> str:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def lower_quartile(values: list[float]) -> float:
    """A quarter of the values are below it."""
    return statistics.quantiles(values, n=4)[0]


def measure(workers: list[Worker], case: str, update: str, momentum: float, seconds: float) -> list[float]:
    """Lower quartiles of the times of the old step, of the new one, and of SGD's in both processes."""
    for worker in workers:
        worker.ask("set", case, update, momentum)
    times: list[list[float]] = [[], [], []]
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end or turn < 8:
        order = (0, 1) if turn % 2 else (1, 0)
        for number in order:
            times[number].append(float(workers[number].ask("step")))
        times[2].extend(float(workers[number].ask("sgd")) for number in order)
        turn += 1
    return [lower_quartile(some) for some in times]


def processor() -> str:
    """What the system calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    """Measure all cases, and append a line for each to the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--what", default="")
    parser.add_argument("--cases", default="resnet50,matrix,tiny,gpt2,full")
    parser.add_argument("--updates", default="sm,un")
    parser.add_argument("--momenta", default="0,0.9")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of every pair of processes and case")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    settings = [
        (case, update, float(momentum))
        for case in asked.cases.split(",")
        for update in ([FULL] if case == FULL else asked.updates.split(","))
        for momentum in asked.momenta.split(",")
    ]
    found: dict[tuple[str, str, float], list[list[float]]] = {one: [] for one in settings}
    for _ in range(asked.pairs):
        workers = [Worker(asked.old), Worker(asked.new)]
        for one in settings:
            found[one].append(measure(workers, *one, asked.seconds))
        for worker in workers:
            worker.close()
    for (case, update, momentum), pairs in found.items():
        quotients = [new / old for old, new, _ in pairs]
        line = {
            "what": asked.what,
            "case": case,
            "update": update,
            "momentum": momentum,
            "ratio_before": round(statistics.median(old / sgd for old, _, sgd in pairs), 3),
            "ratio_after": round(statistics.median(new / sgd for _, new, sgd in pairs), 3),
            "after_over_before": round(statistics.median(quotients), 3),
            "of_pairs": [round(min(quotients), 3), round(max(quotients), 3)],
            "milliseconds_before": round(1e3 * min(old for old, _, _ in pairs), 3),
            "milliseconds_after": round(1e3 * min(new for _, new, _ in pairs), 3),
            "machine": f"{processor()}, one thread of {os.cpu_count()} cores",
            "python": platform.python_version(),
        }
        print(json.dumps(line), flush=True)
        if asked.out:
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if "--worker" in sys.argv:
        work()
    else:
        main()
