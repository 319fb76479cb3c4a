"""What ``sensitivity.py`` trains: four small networks, in float64, with the batches they see.

    arch1, arch2   the paper's networks of two hidden layers on MNIST, or scikit-learn's digits without it
    resnet         convolutions with batch normalization, two residual blocks, on scikit-learn's digits
    gpt            two blocks, layer norms, GELU, biases, on the letters of Python's own help texts

The eps of every normalization is 1e-30: then rescalings are exact, and starts differ in nothing but scaling.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

from symoptim.bench.networks import Block
from symoptim.models import arch1, arch2
from symoptim.paper.data.digits import load_digits
from symoptim.paper.data.files import given_directory
from symoptim.paper.data.mnist import load_mnist

Batch = tuple[Tensor, Tensor]
"""Inputs and the classes they belong to."""

EXACT = 1e-30
CONTEXT, LETTERS = 32, 128


@dataclass(frozen=True, slots=True)
class Task:
    """A network to be made, and where its batches come from."""

    title: str
    make: Callable[[], nn.Module]
    draw: Callable[[int, torch.Generator], Batch]
    """So many examples of the training set."""
    batch: int
    judged: int = 1000
    """How many examples, always the same, the loss is measured on."""
    unit_norm: bool = True
    """Whether filters have a norm of their own, which UN could fix at one."""

    def start(self, seed: int) -> nn.Module:
        """The network with the weights of a seed, in float64, its normalizations without eps."""
        torch.manual_seed(seed)
        model = self.make().double().train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm):
                module.eps = EXACT
        return model


class Residual(nn.Module):
    """Two convolutions with batch normalization around a shortcut."""

    def __init__(self, width: int) -> None:
        """Make a block that keeps the number of channels."""
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the convolutions find to the shortcut."""
        found = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(found)))


def resnet(width: int = 8, blocks: int = 2) -> nn.Module:
    """A residual network for images of 8x8 pixels, which it halves once."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *(Residual(width) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


class SmallGPT(nn.Module):
    """A transformer that guesses the next letter; its output map is its own."""

    def __init__(self, width: int = 32, heads: int = 4, blocks: int = 2) -> None:
        """Make the network, with torch's initialization."""
        super().__init__()
        self.wte, self.wpe = nn.Embedding(LETTERS, width), nn.Embedding(CONTEXT, width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next letter at every place, ``(batch * context, letters)``."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.ln_f(self.h(self.wte(tokens) + self.wpe(places)))).flatten(0, 1)


def images(pictures: Tensor, labels: Tensor) -> Callable[[int, torch.Generator], Batch]:
    """Batches of images, drawn with replacement."""
    pictures = pictures.double()

    def draw(count: int, generator: torch.Generator) -> Batch:
        chosen = torch.randint(len(labels), (count,), generator=generator)
        return pictures[chosen], labels[chosen]

    return draw


def text() -> Callable[[int, torch.Generator], Batch]:
    """Batches of pieces of Python's help texts, as ASCII."""
    content = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    stream = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()

    def draw(count: int, generator: torch.Generator) -> Batch:
        starts = torch.randint(len(stream) - CONTEXT, (count, 1), generator=generator)
        pieces = stream[starts + torch.arange(CONTEXT + 1)]
        return pieces[:, :-1], pieces[:, 1:].flatten()

    return draw


def tasks(data_dir: Path | None) -> dict[str, Task]:
    """All tasks by name.

    Args:
        data_dir: where MNIST is; without it, and without ``SYMOPTIM_DATA``, digits take its place.
    """
    small = load_digits()
    mnist = given_directory(data_dir) is not None
    pairs = load_mnist(data_dir) if mnist else small
    name, inputs = "MNIST" if mnist else "digits", pairs.train_images.shape[1]
    paper = images(pairs.train_images, pairs.train_labels)
    digits = images(small.train_images, small.train_labels)
    return {
        "arch1": Task(f"Arch1, {name}", lambda: arch1(2, inputs=inputs), paper, 64),
        "arch2": Task(f"Arch2, {name}", lambda: arch2(2, inputs=inputs), paper, 64),
        "resnet": Task("residual net, digits", resnet, digits, 32),
        "gpt": Task("small GPT, text", SmallGPT, text(), 8, judged=64, unit_norm=False),
    }
