"""How long finding symmetries takes, as a multiple of tracing the model, and how much memory.

    python benchmarks/discover.py [--out FILE.jsonl]

Every network is measured in a process of its own, with one thread, in process time. Tracing (``torch.export``
with the decompositions) and the whole of ``discover`` take turns, and the ratio is of medians. Peak memory is
what the process holds at most beyond what it held with the model made, in units of the parameters' size.
Timings are reported only if the certificate of the network in small holds.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import symoptim
from measuring import Log, seconds
from symoptim.bench.networks import GPT2, resnet50
from symoptim.symmetry.rules import RULES
from symoptim.symmetry.trace import trace

TURNS = 5
MEBIBYTE = 2**20


def _resnet(mode: bool) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return resnet50().train(mode), (torch.rand(2, 3, 224, 224),)


def _gpt2() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return GPT2(), (torch.randint(50257, (2, 32)),)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "ResNet-50, training": lambda: _resnet(True),
    "ResNet-50, evaluation": lambda: _resnet(False),
    "GPT-2 124M": _gpt2,
}


def certified(spec: symoptim.SymmetrySpec, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> str:
    """The certificate, which must hold."""
    small = tuple(one[:, :, :64, :64] if one.dim() == 4 else one[:, :8] for one in inputs)
    certificate = spec.certify(model, small, elements=1)
    if not certificate.holds:
        sys.exit(f"not timed, for what is found is wrong: {certificate}")
    return str(certificate)


def held() -> float:
    """Memory the process holds now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MEBIBYTE


def measure(name: str) -> dict[str, Any]:
    """All figures of a network."""
    torch.set_num_threads(1)
    symoptim.discover(nn.Linear(2, 2), (torch.rand(1, 2),))  # what is loaded and cached once is no part of it
    model, inputs = NETWORKS[name]()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters()) / MEBIBYTE
    before = held()
    spec = symoptim.discover(model, inputs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    certificate = certified(spec, model, inputs)
    traces, wholes = [], []
    for _ in range(TURNS):
        traces.append(seconds(lambda: trace(model, inputs, known=RULES)))
        wholes.append(seconds(lambda: symoptim.discover(model, inputs)))
    traced, whole = statistics.median(traces), statistics.median(wholes)
    return {
        "network": name,
        "generators": len(spec),
        "trace": traced,
        "discover": whole,
        "ratio": whole / traced,
        "spread": [min(wholes), max(wholes)],
        "parameters_mib": parameters,
        "peak_over_parameters": peak / parameters,
        "certificate": certificate,
    }


def main() -> None:
    """Measure all networks, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="add the figures to that file, as JSON lines")
    parser.add_argument("--network", choices=NETWORKS, help="measure this one, and print JSON")
    asked = parser.parse_args()
    if asked.network:
        print(json.dumps(measure(asked.network)))
        return
    log = Log(asked.out, "discover") if asked.out else None
    print(f"{'':22} {'generators':>10} {'trace':>8} {'discover':>9} {'ratio':>6} {'memory/parameters':>18}")
    for name in NETWORKS:
        command = [sys.executable, __file__, "--network", name]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            sys.exit(found.stderr)
        one = json.loads(found.stdout)
        if log is not None:
            log.add(one)
        print(
            f"{name:22} {one['generators']:>10} {one['trace']:>7.2f}s {one['discover']:>8.2f}s "
            f"{one['ratio']:>6.2f} {one['peak_over_parameters']:>18.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
