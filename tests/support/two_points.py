"""Training in the full metric from two points of an orbit: a small network, optimizers, curves."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, AdamW, Optimizer

from symoptim import (
    FullMetricSGD,
    Geometric,
    OwnRow,
    PathNorm,
    SymmetrySpec,
    clip_invariant_norm_,
    discover,
    invariant,
)

Make = Callable[[nn.Module, SymmetrySpec], Optimizer]
STEPS = 50
THOUSAND = math.log(1e3)
TOLERANCE = 1e-9
ARCHITECTURES = [
    "arch1",
    "arch2 training",
    "vgg training",
    "resnet training",
    "residual mlp",
    "segnet",
    "u-net",
    "grouped and depthwise",
    "weight norm",
    "tied embeddings",
    "llama",
    "gpt, rms norm, squared relu",
    "nn.MultiheadAttention across",
    "max pool over features",
]
QUICK = ["arch1", "arch2 training", "resnet training", "llama", "max pool over features"]
"""Those that are tried every time."""
INVARIANT: dict[str, Make] = {
    "SGD": lambda model, spec: FullMetricSGD(model, spec, lr=0.03),
    "momentum": lambda model, spec: FullMetricSGD(model, spec, lr=3e-3, momentum=0.9),
    "AdamW": lambda model, spec: invariant(AdamW, model, spec=spec, lr=0.01),
}
PLAIN: dict[str, Make] = {
    "SGD": lambda model, _: SGD(model.parameters(), lr=0.03),
    "AdamW": lambda model, _: AdamW(model.parameters(), lr=0.01),
}


def losses(
    model: nn.Module,
    arguments: tuple[Tensor, ...],
    optimizer: Optimizer,
    *,
    steps: int = STEPS,
    before_step: Callable[[Optimizer], object] = lambda _: None,
) -> Tensor:
    """Loss before every step, towards targets that do not depend on the weights."""
    found: list[Tensor] = []
    for step in range(steps):
        torch.manual_seed(step)  # some networks draw
        output = model(*arguments)
        output = output if isinstance(output, Tensor) else output[0]
        target = torch.randn(output.shape, generator=torch.Generator().manual_seed(9), dtype=output.dtype)
        loss = mse_loss(output, target)
        optimizer.zero_grad()
        loss.backward()
        before_step(optimizer)
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def disagreement(one: Tensor, other: Tensor) -> float:
    """Largest relative difference of two curves; infinite where one is not finite."""
    return float(((one - other).abs() / one).nan_to_num(math.inf).max())


def small_network() -> nn.Module:
    hidden = [nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(8, 2))


def a_network(dtype: torch.dtype = torch.float64) -> tuple[nn.Module, tuple[Tensor, ...], SymmetrySpec]:
    torch.manual_seed(0)
    model = small_network().to(dtype)
    return model, (torch.rand(16, 3, dtype=dtype),), symmetries()


@functools.cache
def symmetries() -> SymmetrySpec:
    """Those of the small network, whatever its weights."""
    return discover(small_network(), (torch.rand(16, 3),))


def moved_along(make: Make, clip: float | None = None) -> tuple[Tensor, Tensor]:
    """Curves of the small network from two points of its orbit."""
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = a_network()
        spec.rescale_(model, spec.random(seed=1, spread=far))
        optimizer = make(model, spec)
        clipping = (lambda o: clip_invariant_norm_(o, clip)) if clip is not None else (lambda _: None)
        curves.append(losses(model, x, optimizer, steps=20, before_step=clipping))
    return curves[0], curves[1]


OPTIONS: dict[str, Make] = {
    "Nesterov and decay": lambda model, spec: FullMetricSGD(
        model, spec, lr=3e-3, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "foreach": lambda model, spec: FullMetricSGD(model, spec, lr=3e-3, momentum=0.9, foreach=True),
    "capturable": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, capturable=True),
    "own rows": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, gauge=OwnRow()),
    "path norm": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, gauge=PathNorm()),
    "geometric": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, gauge=Geometric()),
    "geometric AdamW": lambda model, spec: invariant(AdamW, model, spec=spec, lr=0.01, gauge=Geometric()),
    "groups": lambda model, spec: FullMetricSGD(
        model,
        spec,
        lr=0.03,
        groups=[{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2:].parameters()}],
    ),
    "RMSprop": lambda model, spec: invariant(torch.optim.RMSprop, model, spec=spec, lr=1e-3),
}


def zero_branch() -> tuple[nn.Module, tuple[Tensor, ...], SymmetrySpec]:
    model, x, spec = a_network()
    with torch.no_grad():
        model[2].weight.zero_()
    return model, x, spec
