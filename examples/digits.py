"""Train the paper's two networks with its three updates on 8x8 digits, and print the test errors.

python examples/digits.py                20 epochs, a few seconds on a laptop
python examples/digits.py --epochs 60
"""

import argparse

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from symoptim import models
from symoptim.data.digits import load_digits
from training import UPDATES, test_error, train

# The rates the paper's selection finds on MNIST, for all three updates.
ARCHITECTURES = {"Arch1": (models.arch1, 1e-3), "Arch2": (models.arch2, 1e-2)}


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
