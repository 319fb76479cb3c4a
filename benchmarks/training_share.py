"""How much of a whole training step the optimizer takes, and the peak of memory.

    python benchmarks/training_share.py [--device cuda] [--out FILE.jsonl]

ResNet-50 on images of 224 x 224 and GPT-2 (124 M) on tokens, random ones: forward, backward, step, with
momentum 0.9 where an optimizer has one. The optimizers are those of ``symoptim bench``, which
checks them.

    CPU    one thread, float32, small batches, process time; the peak is what the process held at most, with
           finding the symmetries
    CUDA   bfloat16 autocast, larger batches, time between events; the peak is that of torch's allocator

Every optimizer has a process of its own.
"""

import argparse
import functools
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import rivals
from measuring import Log, seconds
from symoptim.bench.cases import case_named
from symoptim.bench.measure import RATE
from symoptim.bench.optimizers import CONTESTANTS, Setup
from symoptim.bench.tensors import CaseTensors
from symoptim.support.devices import device_named

NETWORKS = ("resnet50", "gpt2")
OPTIMIZERS = (
    "sgd-fused",
    "adamw-fused",
    "sm-fused",
    "un-fused",
    "full-fused",
    "sm-reference",
    "un-reference",
    "full-reference",
    "geoopt",
    "sgdp",
)
IMAGES, SEQUENCES = {"cpu": 8, "cuda": 128}, {"cpu": (2, 128), "cuda": (8, 1024)}
TURNS = {"cpu": 5, "cuda": 20}


def batch(network: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random images with labels, or tokens with those that follow."""
    if network == "resnet50":
        number = IMAGES[device.type]
        return torch.rand(number, 3, 224, 224, device=device), torch.randint(1000, (number,), device=device)
    tokens = torch.randint(50257, SEQUENCES[device.type], device=device)
    return tokens, tokens.roll(-1, 1)


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of a call: process time, or between two events."""
    if device.type == "cpu":
        return seconds(work)
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def passes(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Forward and backward; gradients are added to those that are there."""
    cuda = inputs.device.type == "cuda"
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=cuda):
        scores = model(inputs).flatten(0, -2)
        loss = cross_entropy(scores, targets.flatten())
    loss.backward()


def peak(device: torch.device) -> float:
    """Most memory there was in use, in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@functools.cache
def tensors_of(network: str, device: torch.device) -> CaseTensors:
    """A network with its symmetries, made once."""
    torch.manual_seed(0)
    return CaseTensors(case_named(network), device, torch.float32, symmetries=True)


def measure(network: str, optimizer: str, device: torch.device) -> dict[str, Any]:
    """All figures of an optimizer on a network; why there are none, if so."""
    rivals.register()
    contestant = CONTESTANTS[optimizer]
    about: dict[str, Any] = {"network": network, "optimizer": contestant.title}
    missing = contestant.missing(device, torch.float32)
    if missing:
        return {**about, "missing": missing}
    tensors = tensors_of(network, device)
    gradients = [pair.gradient.zero_() for pair in tensors.pairs]
    model, _ = tensors.network()
    inputs, targets = batch(network, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    stepper = contestant.make(Setup(tensors=tensors, pairs=tensors.pairs, lr=RATE, momentum=0.9))
    times: dict[str, list[float]] = {"passes": [], "step": []}
    for turn in range(TURNS[device.type] + 2):
        torch._foreach_zero_(gradients)  # in place, for all parameters over the same memory
        parts = {
            "passes": timed(lambda: passes(model, inputs, targets), device),
            "step": timed(stepper.step, device),
        }
        for name, taken in parts.items():
            times[name] += [taken] if turn > 1 else []
    found = {name: statistics.median(taken) for name, taken in times.items()}
    share = found["step"] / (found["step"] + found["passes"])
    return {**about, **found, "share": share, "peak_mib": peak(device), "batch": list(inputs.shape)}


def main() -> None:
    """Measure everything, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=OPTIMIZERS)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--out", type=Path, help="add the figures to that file, as JSON lines")
    parser.add_argument("--alone", action="store_true", help="measure one, here, and print JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    device = device_named(asked.device)
    if asked.alone:
        print(json.dumps(measure(asked.networks[0], asked.optimizers[0], device)))
        return
    log = Log(asked.out, "share", device) if asked.out else None
    for network in asked.networks:
        for optimizer in asked.optimizers:
            figures = in_own_process(network, optimizer, device)
            print(line_of(figures), flush=True)
            if log is not None:
                log.add(figures)


def in_own_process(network: str, optimizer: str, device: torch.device) -> dict[str, Any]:
    """Figures of an optimizer in a process of its own."""
    one = ["--alone", "--networks", network, "--optimizers", optimizer, "--device", str(device)]
    found = subprocess.run([sys.executable, __file__, *one], capture_output=True, text=True)
    if found.returncode:
        sys.exit(found.stderr)
    return json.loads(found.stdout)


def line_of(one: dict[str, Any]) -> str:
    """Figures in a line."""
    if "missing" in one:
        return f"{one['network']:9} {one['optimizer']:24} {one['missing']}"
    times = f"passes {1e3 * one['passes']:8.2f} ms, step {1e3 * one['step']:8.2f} ms, {one['share']:6.1%}"
    return f"{one['network']:9} {one['optimizer']:24} {times}, peak {one['peak_mib']:6.0f} MiB"


if __name__ == "__main__":
    main()
