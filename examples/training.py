"""What the other examples share: the paper's three updates and an ordinary training loop."""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.optim import SGD, Optimizer

import symoptim
from symoptim.data.split import Split

BATCH = 100

UPDATES: dict[str, Callable[[nn.Module, float], Optimizer]] = {
    "SGD": lambda model, lr: SGD(model.parameters(), lr=lr),
    "SM": lambda model, lr: symoptim.ScaledSGD(symoptim.param_groups(model), lr=lr),
    "UN": lambda model, lr: symoptim.UnitNormSGD(symoptim.param_groups(model), lr=lr),
}


def train(model: nn.Module, optimizer: Optimizer, data: Split, *, epochs: int, seed: int) -> Iterator[float]:
    """Train with mini-batches of 100, each image once per epoch, and yield every epoch's mean loss."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        total = 0.0
        for index in torch.randperm(len(data.train_labels), generator=generator).split(BATCH):
            optimizer.zero_grad()
            scores = model(data.train_images[index])
            loss = nn.functional.cross_entropy(scores, data.train_labels[index], reduction="sum")
            loss.backward()
            optimizer.step()
            total += loss.item()
        yield total / len(data.train_labels)


@torch.no_grad()
def test_error(model: nn.Module, data: Split) -> float:
    """Share of test images the network gets wrong."""
    model.eval()
    wrong = model(data.test_images).argmax(dim=1) != data.test_labels
    model.train()
    return wrong.double().mean().item()
