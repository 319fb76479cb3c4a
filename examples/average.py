"""Average the weights of two networks that were trained on from one checkpoint, one of them in another gauge.

python examples/average.py               four seeds, under a minute on one core
python examples/average.py --quick       one seed

A checkpoint is trained on 8x8 digits, and two copies of it go on with different images. The mean of their
weights is a good network. Then one copy is rescaled by factors of up to 3: it computes what it did before,
but the mean is spoiled. ``symoptim.align`` brings it back to the other's gauge.
"""

import argparse
import copy
import math

import torch
from torch import Tensor, nn

import symoptim
from symoptim.ensemble import Split
from symoptim.paper.data.digits import load_digits


def network() -> nn.Sequential:
    """Eight hidden layers."""
    hidden = [part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(64, 10))


def train(model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, seed: int) -> None:
    """Adam, batches of 50."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for index in torch.randperm(len(labels), generator=generator).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
            optimizer.step()


@torch.no_grad()
def measure(model: nn.Module, data: Split) -> tuple[float, float]:
    """Share of test images the network gets right, and its loss on them."""
    scores = model(data.test_images)
    hits = (scores.argmax(dim=1) == data.test_labels).double().mean()
    return float(hits), float(nn.functional.cross_entropy(scores, data.test_labels))


@torch.no_grad()
def mean(one: nn.Module, other: nn.Module) -> nn.Module:
    """The network halfway between two."""
    found = copy.deepcopy(one)
    for average, parameter in zip(found.parameters(), other.parameters(), strict=True):
        average.add_(parameter).div_(2)
    return found


def compared(data: Split, *, seed: int) -> dict[str, tuple[float, float]]:
    """Train, go on twice, rescale one, and average."""
    torch.manual_seed(seed)
    half = len(data.train_labels) // 2
    checkpoint = network()
    train(checkpoint, data.train_images[:half], data.train_labels[:half], epochs=40, seed=seed)
    one, other = copy.deepcopy(checkpoint), copy.deepcopy(checkpoint)
    train(one, data.train_images[:half], data.train_labels[:half], epochs=10, seed=seed + 100)
    train(other, data.train_images[half:], data.train_labels[half:], epochs=10, seed=seed + 200)
    spec = symoptim.discover(one, (data.test_images,))
    rescaled = spec.rescale_(copy.deepcopy(other), spec.random(seed=seed, spread=math.log(3)))
    networks = {
        "one": one,
        "other": other,
        "other, rescaled": rescaled,
        "mean, same gauge": mean(one, other),
        "mean, other gauge": mean(one, rescaled),
        "mean after align": mean(one, symoptim.align(one, rescaled, spec)),
    }
    return {name: measure(model, data) for name, model in networks.items()}


def main() -> None:
    """Show means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    options = parser.parse_args()
    data = load_digits()
    results = [compared(data, seed=seed) for seed in range(1 if options.quick else 4)]
    print(f"{'mean of ' + str(len(results)) + ' seeds':20} accuracy   loss")
    for name in results[0]:
        accuracy, loss = (
            sum(column) / len(results) for column in zip(*(r[name] for r in results), strict=True)
        )
        print(f"{name:20} {accuracy:8.3f} {loss:6.3f}")


if __name__ == "__main__":
    main()
