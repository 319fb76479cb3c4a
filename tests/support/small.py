"""A data set and runs small enough for tests of ensembles."""

from collections.abc import Callable

import torch
from torch import nn

from symoptim.ensemble.ensemble import Ensemble, Result
from symoptim.ensemble.images import Batch, Split
from symoptim.ensemble.run import Constant, FixedEpochs, Run, Schedule, Stopping
from symoptim.models import arch1, arch2

PIXELS = 12


def small_data(dtype: torch.dtype = torch.float64) -> Split:
    """Images of 12 pixels in 4 classes that a network can tell apart: 240 for training, 60 for testing."""
    generator = torch.Generator().manual_seed(7)
    centers = torch.rand(4, PIXELS, generator=generator)
    labels = torch.randint(4, (300,), generator=generator)
    images = (centers[labels] + 0.3 * torch.rand(300, PIXELS, generator=generator)).to(dtype)
    return Split(images[:240], labels[:240], images[240:], labels[240:])


def blank_data(dtype: torch.dtype = torch.float64) -> Split:
    """The same, but three pixels of four are zero, and a few images are blank."""
    pixels, labels, *rest = small_data(dtype)
    drawn = torch.rand(300, PIXELS, generator=torch.Generator().manual_seed(8)) < 0.25
    drawn[:5] = False
    test = rest[0] * drawn[240:]
    return Split(pixels * drawn[:240], labels, test, rest[1])


def a_run(
    update: str = "sm",
    *,
    rate: float = 1e-2,
    schedule: Schedule | None = None,
    stopping: Stopping | None = None,
    seed: int = 0,
    train: int = 200,
    validation: int = 40,
) -> Run:
    """A run of three epochs at a constant rate, unless it is told otherwise."""
    return Run(
        update=update,
        rate=rate,
        schedule=schedule or Constant(),
        stopping=stopping or FixedEpochs(maximum=3),
        seed=seed,
        train=train,
        validation=validation,
    )


def small_network(architecture: str = "arch2", dtype: torch.dtype = torch.float64) -> Callable[[], nn.Module]:
    """Factory of a 2-layer network for the small data."""
    make = {"arch1": arch1, "arch2": arch2}[architecture]
    return lambda: make(2, inputs=PIXELS, width=8, classes=4).to(dtype)


def batch_of(order: torch.Tensor, part: slice) -> Batch:
    """A batch of all runs: so much of their order."""
    start = part.start or 0
    return Batch(order, torch.tensor([start]), torch.arange(part.stop - start))


def ensemble_of(runs: dict[str, Run], *, architecture: str = "arch2", batch: int = 30) -> Ensemble:
    """Runs of the small network on the small data."""
    return Ensemble(runs, small_network(architecture), small_data(), batch=batch)


def train(ensemble: Ensemble) -> dict[str, list[Result]]:
    """Train all runs to their end; every epoch of every run."""
    results: dict[str, list[Result]] = {name: [] for name in ensemble.runs}
    while ensemble.is_running:
        for name, result in ensemble.train_epoch().items():
            results[name].append(result)
    return results
