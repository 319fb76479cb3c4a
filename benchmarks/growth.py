"""How filters grow behind batch normalization, where their size changes nothing: Arch2 in float32.

    SYMOPTIM_DATA=FOLDER python benchmarks/growth.py [--steps 1000]

Gradients are orthogonal to such filters, so that every step makes them longer. SGD and AdamW then turn them
less and less. Invariant updates turn them by as much as ever, so that they grow exponentially, at a pace that
goes with the square of the rate. Prints the loss of a batch and the mean norm of the first layer's filters.
"""

import argparse
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import symoptim
from sensitivity import UPDATES
from sensitivity_tasks import Task, tasks

RATES = (
    ("sgd", 0.32),
    ("full", 0.32),
    ("adamw", 0.01),
    ("invariant-adamw", 0.0032),
    ("invariant-adamw", 0.032),
)


def growth(task: Task, update: str, rate: float, steps: int) -> list[str]:
    """Loss and norm, five times in all; the last entry says when the loss was not finite any more."""
    model = task.start(0).float()
    batches = torch.Generator().manual_seed(0)
    spec = symoptim.discover(model, (task.draw(task.batch, batches)[0].float(),))
    optimizer = UPDATES[update](model, spec, rate)
    filters = next(model.parameters())
    found: list[str] = []
    for step in range(1, steps + 1):
        inputs, targets = task.draw(task.batch, batches)
        loss = cross_entropy(model(inputs.float()), targets)
        if not loss.isfinite():
            return [*found, f"not finite at step {step}"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 5) == 0:
            found.append(f"{loss.item():.2f} {filters.detach().norm(dim=1).mean().item():.1e}")
    return found


def main() -> None:
    """Print a line for every update and rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST; by default SYMOPTIM_DATA, or digits")
    parser.add_argument("--steps", type=int, default=1000, help="of every run")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    task = tasks(asked.data_dir)["arch2"]
    for update, rate in RATES:
        print(f"{update:16} {rate:<7}", "   ".join(growth(task, update, rate, asked.steps)), flush=True)


if __name__ == "__main__":
    main()
