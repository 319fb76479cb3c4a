"""Whether every element of a discovered group leaves a model's outputs as they are, in float64."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import model_tensors

RELATIVE = 1e-8
NUDGE = 1e-12  # of weights: what it changes is how much rounding can change, magnified
MAGNIFIED = 100


@torch.no_grad()
def outputs(model: nn.Module, arguments: Sequence[Any]) -> list[Tensor]:
    """All outputs of a copy, as float64: what a call writes into the model or its inputs is forgotten."""
    torch.manual_seed(0)
    found = tree_leaves(copy.deepcopy(model)(*copy.deepcopy(tuple(arguments))))
    return [torch.as_tensor(one).double() for one in found if one is not None]


@torch.no_grad()
def nudged(model: nn.Module, seed: int) -> nn.Module:
    """A copy with weights changed as little as rounding might, a bit more."""
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    for tensor in {id(tensor): tensor for tensor in model_tensors(other).values()}.values():
        if tensor.is_floating_point():
            tensor.mul_(1 + NUDGE * torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return other


def difference(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[Tensor]:
    """Absolute changes; an infinity or NaN that stays is none, one that comes or goes is infinite."""
    found: list[Tensor] = []
    for old, new in zip(before, after, strict=True):
        alike = (old == new) | (old.isnan() & new.isnan())
        found.append(torch.where(alike, 0.0, (new - old).abs()).nan_to_num(torch.inf))
    return found


def changes(spec: SymmetrySpec, model: nn.Module, arguments: Sequence[Any], *, elements: int = 2) -> bool:
    """Whether random elements change any output by more than rounding can."""
    before = outputs(model, arguments)
    for seed in range(elements):
        rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=seed, spread=2.0))
        after = outputs(rescaled, arguments)
        rounding = [torch.zeros(()) for _ in before]
        for one, plain in ((model, before), (rescaled, after)):
            for other in (1, 2):
                felt = difference(plain, outputs(nudged(one, other), arguments))
                rounding = [
                    torch.maximum(a, b.max()) if b.numel() else a for a, b in zip(rounding, felt, strict=True)
                ]
        for old, change, noise in zip(before, difference(before, after), rounding, strict=True):
            size = old.nan_to_num(0.0, 0.0, 0.0).abs().max() if old.numel() else 0.0
            if bool((change > RELATIVE * size + MAGNIFIED * noise + 1e-300).any()):
                return True
    return False
