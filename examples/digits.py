"""Train the paper's two networks with its three updates on 8x8 digits, and print the test errors.

python examples/digits.py                20 epochs, a few seconds on a laptop
python examples/digits.py --epochs 60
"""

import argparse
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn
from torch.optim import SGD, Optimizer

import symoptim
from symoptim import models
from symoptim.ensemble import Split
from symoptim.paper.data.digits import load_digits

# The rates the paper's selection finds on MNIST, for all three updates.
ARCHITECTURES = {"Arch1": (models.arch1, 1e-3), "Arch2": (models.arch2, 1e-2)}

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


def main() -> None:
    """Train all six and show the table."""
    parser = argparse.ArgumentParser(description="2-layer Arch1 and Arch2 on 8x8 digits, three updates.")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of training (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default 0)")
    options = parser.parse_args()

    console = Console()
    data = load_digits()
    table = Table("test error", *UPDATES, title=f"8x8 digits, 2 layers, {options.epochs} epochs, one seed")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("epochs", total=options.epochs * len(UPDATES) * len(ARCHITECTURES))
        for architecture, (make, lr) in ARCHITECTURES.items():
            errors: list[float] = []
            for update, optimizer in UPDATES.items():
                torch.manual_seed(options.seed)
                model = make(depth=2, inputs=64)
                progress.update(task, description=f"{architecture} {update}")
                for _ in train(model, optimizer(model, lr), data, epochs=options.epochs, seed=options.seed):
                    progress.advance(task)
                errors.append(test_error(model, data))
            table.add_row(architecture, *(f"{error:.4f}" for error in errors))
        progress.update(task, description="done")
    console.print(table)


if __name__ == "__main__":
    main()
