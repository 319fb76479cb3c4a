"""Checkpoints of every optimizer, made once by an old version and kept: later versions must go on from them.

    python -m tests.support.checkpoints FOLDER

writes them with the version that is on the path. Gradients are written down, not computed by a network, so
that nothing but the optimizer decides what comes out.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import symoptim

STEPS = 3
KEPT = Path(__file__).parents[1] / "optim" / "old_checkpoints"


def network(dtype: torch.dtype) -> nn.Module:
    """The README's network, smaller, with weights that every version computes alike."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)
    )
    for number, parameter in enumerate(model.parameters()):
        parameter.data = 0.5 + written_down(parameter, number).abs()
    return model.to(dtype)


def written_down(like: Tensor, number: int) -> Tensor:
    """Numbers between -1 and 1 that are the same everywhere: a sawtooth in sixteenths."""
    entries = torch.arange(like.numel(), dtype=torch.int64)
    return (((entries * 7 + number * 5) % 31 - 15).double() / 16).reshape(like.shape).to(like.dtype)


@functools.cache
def symmetries() -> symoptim.SymmetrySpec:
    """Symmetries of the network, in the mode it trains in."""
    return symoptim.discover(network(torch.float64), (torch.rand(2, 1, 4, 4, dtype=torch.float64),))


def of_groups(kind: type[Optimizer], **options: Any) -> Callable[[nn.Module], Optimizer]:
    """An optimizer that takes parameter groups."""
    return lambda model: kind(symoptim.param_groups(model), **options)  # pyright: ignore[reportArgumentType]


def with_spec(
    make: Callable[[nn.Module, symoptim.SymmetrySpec], Optimizer],
) -> Callable[[nn.Module], Optimizer]:
    """An optimizer that takes a model and its symmetries."""
    return lambda model: make(model, symmetries())


MAKERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "scaled": of_groups(symoptim.ScaledSGD, lr=0.01),
    "scaled_momentum": of_groups(symoptim.ScaledSGD, lr=0.01, momentum=0.9, weight_decay=0.01),
    "unit_norm": of_groups(symoptim.UnitNormSGD, lr=0.01, normalize=True),
    "unit_norm_momentum": of_groups(symoptim.UnitNormSGD, lr=0.01, momentum=0.9, normalize=True),
    "invariant_adamw": lambda model: symoptim.invariant(
        torch.optim.AdamW, symoptim.param_groups(model), lr=0.01
    ),
    "full": with_spec(lambda model, spec: symoptim.FullMetricSGD(model, spec, lr=0.01, momentum=0.9)),
    "full_adamw": with_spec(
        lambda model, spec: symoptim.invariant(torch.optim.AdamW, model, spec=spec, lr=0.01)
    ),
}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def step(model: nn.Module, optimizer: Optimizer, number: int) -> None:
    """One step with gradients that are written down."""
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = written_down(parameter, 11 * number + index)
    optimizer.step()


def write(folder: Path) -> None:
    """Write every checkpoint, and the weights that the steps after it lead to."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MAKERS.items():
        for dtype_name, dtype in DTYPES.items():
            model = network(dtype)
            optimizer = make(model)
            for number in range(STEPS):
                step(model, optimizer, number)
            # A copy of all: the state is that of now, not what later steps make of it.
            saved = torch.utils._pytree.tree_map(
                lambda one: one.clone() if isinstance(one, Tensor) else one,
                {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()},
            )
            for number in range(STEPS, 2 * STEPS):
                step(model, optimizer, number)
            saved["after"] = dict(model.state_dict())
            torch.save(saved, folder / f"{name}_{dtype_name}.pt")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
