"""Train one network from two points of its orbit and compare the losses: the paper's claim itself."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.models import PairwiseNetwork, arch1, arch2
from symoptim.paper.data.digits import load_digits

STEPS, BATCH = 200, 100
MakeOptimizer = Callable[[nn.Module], Optimizer]


def network(architecture: int, depth: int, seed: int = 0) -> PairwiseNetwork:
    """Arch1 or Arch2 for digits in float64; batch normalization without an eps that would be felt."""
    torch.manual_seed(seed)
    made = arch1(depth, inputs=64) if architecture == 1 else arch2(depth, inputs=64, eps=1e-30)
    return made.double()


def batches(steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    """Mini-batches of digits, each image once per epoch."""
    split = load_digits(dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    order = torch.cat([torch.randperm(1500, generator=generator) for _ in range(-(-steps * BATCH // 1500))])
    for index in order[: steps * BATCH].split(BATCH):
        yield split.train_images[index], split.train_labels[index]


def loss_curve(model: nn.Module, make: MakeOptimizer, steps: int = STEPS) -> Tensor:
    """Summed cross-entropy of every mini-batch while training."""
    optimizer = make(model)
    losses: list[float] = []
    for images, labels in batches(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels, reduction="sum")
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def curves_from_two_points(architecture: int, depth: int, make: MakeOptimizer) -> tuple[Tensor, Tensor]:
    """Loss curves from the balanced start and from a rescaling of it by factors in [1e-3, 1e3]."""
    balanced = network(architecture, depth)
    rescaled = copy.deepcopy(balanced)
    rescaled.rescale_(rescaled.random_scales(seed=2, low=1e-3, high=1e3))
    return loss_curve(balanced, make), loss_curve(rescaled, make)


def disagreement(a: Tensor, b: Tensor) -> float:
    """Largest relative difference of two loss curves; infinite if either is not finite."""
    difference = ((a - b).abs() / a.abs()).max().item()
    return difference if difference == difference else torch.inf


def falls_by_half(curve: Tensor) -> bool:
    """Whether the loss of the last ten batches is below half of the first's."""
    return bool(curve[-10:].mean() < curve[0] / 2)
