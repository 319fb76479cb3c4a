"""From the SegNet protocol to runs: which there are, what each is called, and the network they train.

Seeds belong to a repeat, not to an update: in one repeat all updates start from the same weights and see the
same images, changed in the same way, in the same order. The search has a seed of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from symoptim.ensemble.run import FixedEpochs
from symoptim.models.segnet import SegNet, SegNetBasic
from symoptim.paper.data.classes import CLASSES
from symoptim.paper.data.scenes import Scenes
from symoptim.paper.experiments.segnet_protocol import SegNetProtocol
from symoptim.paper.segnet.pixels import Standardize
from symoptim.paper.segnet.run import SceneRun
from symoptim.support.seeds import derive_seed


class PlannedScenes(NamedTuple):
    """A run with its name and what it stands for."""

    name: str
    labels: Mapping[str, object]
    run: SceneRun


def search_runs(protocol: SegNetProtocol) -> list[PlannedScenes]:
    """Short runs on crops at every candidate rate, for every update."""
    seed = derive_seed(protocol.seed, "search")
    epochs = min(protocol.search_epochs, protocol.epochs)
    return [
        PlannedScenes(
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


def full_run(protocol: SegNetProtocol, update: str, rate: float, repeat: int) -> PlannedScenes:
    """A run of the whole length."""
    seed = derive_seed(protocol.seed, "full", repeat)
    return PlannedScenes(
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
