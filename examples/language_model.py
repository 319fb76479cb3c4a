"""Train a small language model from two scalings of the same weights: AdamW parts, invariant AdamW does not.

python examples/language_model.py [--steps 200]

The text is Python's own documentation of its statements, letter by letter. The second start is the first one
with every unit rescaled by a factor between 1/20 and 20: the same function, other numbers.
"""

import argparse
import copy
from collections.abc import Callable
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

import symoptim
from discover import Transformer

LETTERS = 128
LENGTH = 32
Make = Callable[[nn.Module], Optimizer]


def text() -> Tensor:
    """The documentation as numbers of letters."""
    letters = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    return torch.frombuffer(bytearray(letters), dtype=torch.uint8).long()


def batches(letters: Tensor, steps: int) -> list[Tensor]:
    """Pieces of the text, always the same."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(letters) - LENGTH, (steps, 16), generator=generator)
    return [torch.stack([letters[s : s + LENGTH + 1] for s in piece]) for piece in starts.tolist()]


def train(model: nn.Module, pieces: list[Tensor], make: Make) -> list[float]:
    """Loss before every step, in nats per letter."""
    optimizer = make(model)
    losses: list[float] = []
    for piece in pieces:
        scores = model(piece[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(steps: int) -> None:
    """Train four times and print the curves."""
    torch.manual_seed(0)
    here = Transformer(vocabulary=LETTERS, width=32, hidden=64).double()
    pieces = batches(text(), steps)
    spec = symoptim.discover(here, (pieces[0][:, :-1],))
    there = spec.rescale_(copy.deepcopy(here), spec.random(spread=3.0))
    optimizers: dict[str, Make] = {
        "AdamW": lambda model: AdamW(model.parameters(), lr=3e-3),
        "invariant AdamW": lambda model: symoptim.invariant(AdamW, model, spec=spec, lr=3e-3),
    }
    for name, make in optimizers.items():
        one, other = (train(copy.deepcopy(model), pieces, make) for model in (here, there))
        apart = max(abs(a - b) / a for a, b in zip(one, other, strict=True))
        print(f"{name}: loss from {one[0]:.3f} to {one[-1]:.3f}, from the other start to {other[-1]:.3f}")
        print(f"{name}: the curves part by up to {apart:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    main(parser.parse_args().steps)
