"""From the protocol to runs: what a run is, which there are, and the network they train.

Seeds belong to a repeat, not to an update: in one repeat all updates start from the same weights and see the
same images, changed in the same way, in the same order. The search has a seed of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import nn

from symoptim.ensemble.run import FixedEpochs, Schedule, named_plainly, require_rules
from symoptim.errors import OptionError
from symoptim.models.segnet import SegNet, SegNetBasic
from symoptim.paper.choices import Weighting, require_known, require_positive
from symoptim.paper.data.classes import CLASSES
from symoptim.paper.data.scenes import Scenes
from symoptim.paper.segnet.augment import Augmentation
from symoptim.paper.segnet.images import Standardize
from symoptim.paper.segnet.protocol import SegNetProtocol
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from symoptim.support.seeds import derive_seed


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneRun:
    """One run: ``seed`` decides its weights, the order of its batches and what is done to its images.

    ``rate`` multiplies the gradient of the mean loss, as torch users expect. Images that do not fill a batch
    at the end of an epoch are left out of it. The validation set is looked at every ``measure_every``
    epochs and after the last.
    """

    update: str
    rate: float
    schedule: Schedule
    stopping: FixedEpochs
    seed: int
    batch: int
    weighting: Weighting
    augmentation: Augmentation
    measure_every: int

    def __post_init__(self) -> None:
        require_rules(self.rate, self.schedule, self.stopping)
        require_known([self.update], SCENE_OPTIMIZERS)
        if not isinstance(self.stopping, FixedEpochs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"runs on scenes train a fixed number of epochs, got {self.stopping!r}")
        require_positive(self, "batch", "measure_every")

    def as_dict(self) -> dict[str, object]:
        """Plain data, for records: the alternatives are named by their class."""
        return named_plainly(self, "schedule", "stopping")


class Planned(NamedTuple):
    """A run with its name and what it stands for."""

    name: str
    labels: Mapping[str, object]
    run: SceneRun


def search_runs(protocol: SegNetProtocol) -> list[Planned]:
    """Short runs on crops at every candidate rate, for every update."""
    seed = derive_seed(protocol.seed, "search")
    epochs = min(protocol.search_epochs, protocol.epochs)
    return [
        Planned(
            f"search/{update}/{rate:g}",
            {"phase": "search", "update": update, "rate": rate},
            replace(
                _run(protocol, update, rate, epochs, seed),
                augmentation=replace(protocol.augmentation, crop=protocol.search_crop),
                measure_every=epochs,
            ),
        )
        for update in protocol.updates
        for rate in protocol.rates
    ]


def full_run(protocol: SegNetProtocol, update: str, rate: float, repeat: int) -> Planned:
    """A run of the whole length."""
    seed = derive_seed(protocol.seed, "full", repeat)
    return Planned(
        f"full/{update}/{rate:g}/{repeat}",
        {"phase": "full", "update": update, "rate": rate, "repeat": repeat},
        _run(protocol, update, rate, protocol.epochs, seed),
    )


def _run(protocol: SegNetProtocol, update: str, rate: float, epochs: int, seed: int) -> SceneRun:
    return SceneRun(
        update=update,
        rate=rate,
        schedule=protocol.schedule_over(epochs),
        stopping=FixedEpochs(maximum=epochs),
        seed=seed,
        batch=protocol.batch,
        weighting=protocol.weighting,
        augmentation=protocol.augmentation,
        measure_every=protocol.measure_every,
    )


def network_of(protocol: SegNetProtocol, train: Scenes) -> Callable[[], nn.Module]:
    """Factory of the network, which takes pixels from 0 to 255 as those of ``train`` are."""
    classes = len(CLASSES)
    if protocol.network == "segnet-basic":  # its first layer normalizes the pixels
        return lambda: SegNetBasic(classes, features=protocol.features)
    pixels = Standardize(train.images)
    return lambda: nn.Sequential(pixels, SegNet(classes, width=protocol.features / 64))
