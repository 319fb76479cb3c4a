"""What a step in the full metric costs, as a multiple of torch's fused SGD, on the CPU.

    python benchmarks/full_step.py [--out FILE.json]

One thread, process time; all optimizers take turns on the same weights and gradients, and ratios are of
medians. Nothing is timed before a step in the full metric agrees with the formula in float64. The floor is a
copy of the weights, which moves as much memory as a step of SGD: what is written is read first.
"""

import argparse
import copy
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import symoptim
from measuring import seconds, write_figures
from symoptim.bench.networks import GPT2, resnet50
from symoptim.metric.full_metric import FullMetric
from symoptim.symmetry.tensors import model_tensors

TURNS = 9
NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "ResNet-50": lambda: (resnet50(), (torch.rand(2, 3, 64, 64),)),
    "GPT-2 124M": lambda: (GPT2(), (torch.randint(50257, (2, 16)),)),
}
OPTIMIZERS: dict[str, Callable[[nn.Module, symoptim.SymmetrySpec], Optimizer]] = {
    "SGD, fused": lambda model, _: SGD(model.parameters(), lr=1e-6, fused=True),
    "SGD, foreach": lambda model, _: SGD(model.parameters(), lr=1e-6, foreach=True),
    "SM": lambda model, _: symoptim.ScaledSGD(symoptim.param_groups(model), lr=1e-6),
    "full": lambda model, spec: symoptim.FullMetricSGD(model, spec, lr=1e-6),
    "geometric": lambda model, spec: symoptim.FullMetricSGD(model, spec, lr=1e-6, gauge=symoptim.Geometric()),
    "AdamW, fused": lambda model, _: AdamW(model.parameters(), lr=1e-6, fused=True),
    "full AdamW": lambda model, spec: symoptim.invariant(AdamW, model, spec=spec, lr=1e-6, fused=True),
}


def gate(model: nn.Module, spec: symoptim.SymmetrySpec) -> float:
    """Largest error of a step against the formula in float64, relative to the largest step of its tensor."""
    exact, stepped = copy.deepcopy(model).double(), copy.deepcopy(model)
    tensors = {name: tensor.detach() for name, tensor in model_tensors(exact).items()}
    squares = FullMetric.of(spec, model_tensors(exact), symoptim.Pooled()).factors(tensors, 2.0)
    for parameter in stepped.parameters():
        parameter.grad = torch.ones_like(parameter)
    symoptim.FullMetricSGD(stepped, spec, lr=1.0).step()
    worst = 0.0
    for name, parameter in stepped.named_parameters():
        expected = math.prod(squares.get(name, ()), start=torch.ones_like(tensors[name]))
        moved = tensors[name] - parameter.detach().double()
        rounding = tensors[name].abs().max() * 1e-6
        error = ((moved - expected).abs().max() - rounding).clamp(min=0) / expected.abs().max()
        worst = max(worst, float(error))
    if worst > 1e-4:
        sys.exit(f"not timed, for the step is wrong by {worst:.1e}")
    return worst


def measure(name: str) -> dict[str, Any]:
    """All figures of a network."""
    torch.manual_seed(0)
    model, inputs = NETWORKS[name]()
    spec = symoptim.discover(model, inputs)
    error = gate(model, spec)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-3
    steps = {label: make(model, spec).step for label, make in OPTIMIZERS.items()}
    source = [torch.randn_like(parameter) for parameter in model.parameters()]
    target = [torch.empty_like(one) for one in source]

    def floor() -> None:
        for one, other in zip(target, source, strict=True):
            one.copy_(other)

    times: dict[str, list[float]] = {label: [] for label in ("copy", *steps)}
    for turn in range(TURNS + 1):
        for label, work in [("copy", floor), *steps.items()]:
            took = seconds(work)
            if turn:  # the first makes state
                times[label].append(took)
    medians = {label: statistics.median(taken) for label, taken in times.items()}
    return {
        "network": name,
        "generators": len(spec),
        "gate": error,
        "seconds": medians,
        "ratios": {label: taken / medians["SGD, fused"] for label, taken in medians.items()},
    }


def main() -> None:
    """Measure all networks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    figures = [measure(name) for name in NETWORKS]
    for one in figures:
        print(f"{one['network']}: step against the formula {one['gate']:.0e}")
        for label, ratio in one["ratios"].items():
            print(f"  {label:14} {1e3 * one['seconds'][label]:8.1f} ms {ratio:6.2f}")
    if asked.out:
        write_figures(asked.out, figures)


if __name__ == "__main__":
    main()
