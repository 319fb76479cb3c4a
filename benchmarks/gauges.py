"""How long the representative of an orbit and equalization take, and how near two copies come.

    python benchmarks/gauges.py

One thread, process time, networks with random weights as they are and rescaled by factors of up to 7 (in
float32, so that copies agree to its rounding).
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

import symoptim
from measuring import seconds
from symoptim.bench.networks import GPT2, resnet50

NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "ResNet-50, training": lambda: (resnet50(), (torch.rand(2, 3, 64, 64),)),
    "GPT-2 124M": lambda: (GPT2(), (torch.randint(50257, (2, 32)),)),
}


def distance(one: nn.Module, other: nn.Module) -> float:
    """Largest difference of parameters, each relative to the largest entry of its tensor."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) for a, b in pairs)


@torch.no_grad()
def main() -> None:
    """Measure every network."""
    torch.set_num_threads(1)
    for name, make in NETWORKS.items():
        torch.manual_seed(0)
        with torch.enable_grad():
            model, inputs = make()
            spec = symoptim.discover(model, inputs)
        other = spec.rescale_(copy.deepcopy(model), spec.random(spread=2.0))
        times = [seconds(symoptim.canonicalize_, one, spec) for one in (model, other)]
        apart = distance(model, other)
        equalizing = seconds(symoptim.equalize_, model, spec)
        print(
            f"{name}: {len(spec)} generators; canonicalize_ {times[0]:.1f} s, rescaled {times[1]:.1f} s, "
            f"forms {apart:.0e} apart; equalize_ {equalizing:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
