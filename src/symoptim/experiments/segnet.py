"""Carry out the SegNet experiment: a search for the rate of every update, then repeats at the rates it chose.

Seeds belong to a repeat, not to an update: in one repeat all updates start from the same weights and see the
same images, changed in the same way, in the same order. The search has a seed of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from symoptim.data.classes import CLASSES
from symoptim.data.scenes import Scenes, SceneSplit
from symoptim.engine.numerics import derive_seed
from symoptim.engine.run import FixedEpochs
from symoptim.experiments.recording import Recorder, Task, Watcher
from symoptim.experiments.segnet_protocol import SegNetProtocol
from symoptim.experiments.selection import NO_RATE, Candidate, choose
from symoptim.models.segnet import SegNet, SegNetBasic
from symoptim.records.findings import Example, write_examples
from symoptim.records.ledger import RunRow
from symoptim.records.reading import read_runs
from symoptim.records.store import Records
from symoptim.segmentation.pictures import jpeg, label_png
from symoptim.segmentation.pixels import Standardize
from symoptim.segmentation.run import SceneRun
from symoptim.segmentation.training import SceneTraining

EXAMPLES = 4
"""Test images that are kept to be looked at, evenly spread over the set."""


class PlannedScenes(NamedTuple):
    """A run with its name and what it stands for."""

    name: str
    labels: Mapping[str, object]
    run: SceneRun


def search_runs(protocol: SegNetProtocol) -> list[PlannedScenes]:
    """Short runs on crops at every candidate rate, for every update."""
    seed = derive_seed(protocol.seed, "search")
    return [
        PlannedScenes(
            f"search/{update}/{rate:g}",
            {"phase": "search", "update": update, "rate": rate},
            replace(
                _run(protocol, update, rate, protocol.search_epochs, seed),
                augmentation=replace(protocol.augmentation, crop=protocol.search_crop),
                measure_every=protocol.search_epochs,
            ),
        )
        for update in protocol.updates
        for rate in protocol.rates
    ]


def full_run(protocol: SegNetProtocol, update: str, repeat: int, rate: float) -> PlannedScenes:
    """A run of the whole length."""
    seed = derive_seed(protocol.seed, "full", repeat)
    return PlannedScenes(
        f"full/{update}/{repeat}",
        {"phase": "full", "update": update, "repeat": repeat},
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


@dataclass(frozen=True, slots=True)
class SegNetExperiment:
    """A protocol with all that carrying it out takes; ``compiled`` steps go through ``torch.compile``."""

    protocol: SegNetProtocol
    data: SceneSplit
    device: torch.device
    records: Records
    watcher: Watcher
    compiled: bool = False

    def carry_out(self) -> None:
        """Train whatever the records do not have yet."""
        protocol = self.protocol
        examples = example_names(self.data.test)
        with self.records.writing() as connection:
            write_examples(connection, _examples(self.data.test, examples))
        data = SceneSplit(*(scenes.to(self.device) for scenes in self.data))
        network = network_of(protocol, data.train)
        recorder = Recorder(self.records, self.watcher)

        def train(planned: PlannedScenes, shown: list[str]) -> None:
            name, _, run = planned
            recorder.train(
                name,
                {name: self._task(planned)},
                lambda: SceneTraining(name, run, network, data, examples=shown, compiled=self.compiled),
            )

        self._announce()
        for planned in search_runs(protocol):
            train(planned, [])
        rates = {update: self._rate(update) for update in protocol.updates}
        # Repeat by repeat, not update by update: stopped on the way, it leaves a fair comparison.
        for repeat in range(protocol.repeats):
            for update, rate in rates.items():
                planned = full_run(protocol, update, repeat, rate or 1.0)
                if rate is None:
                    recorder.give_up(planned.name, self._task(planned), NO_RATE)
                else:
                    train(planned, examples)
        self.records.finish()

    def _announce(self) -> None:
        """Tell the watcher how much there is to do; the rates of full runs make no difference to that."""
        protocol = self.protocol
        full = [
            full_run(protocol, update, repeat, 1.0)
            for update in protocol.updates
            for repeat in range(protocol.repeats)
        ]
        everything = [self._task(planned) for planned in (*search_runs(protocol), *full)]
        self.watcher.expect(runs=len(everything), work=sum(task.work for task in everything))

    def _rate(self, update: str) -> float | None:
        """Rate whose search run had the best validation score at its end; None if all diverged."""
        if not self.protocol.rates:
            return self.protocol.registered_rate(update)
        return choose(
            Candidate(run.labels["rate"], run.curve[-1].validation_error, run.diverged)
            for run in read_runs(self.records.connection, "search")
            if run.labels["update"] == update
        )

    def _task(self, planned: PlannedScenes) -> Task:
        """Work is counted in whole images: of crops only their share."""
        name, labels, run = planned
        images = len(self.data.train.names) // run.batch * run.batch
        crop, (height, width) = run.augmentation.crop, self.data.train.labels.shape[1:]
        share = crop[0] * crop[1] / (height * width) if crop else 1.0
        return Task(RunRow(name, labels, run.as_dict()), max(1, round(images * share)), run.stopping.maximum)


def example_names(test: Scenes) -> list[str]:
    """Names of the test images to look at.

    >>> names = tuple(f"image {k}" for k in range(80))
    >>> example_names(Scenes(torch.empty(80), torch.empty(80), names))
    ['image 10', 'image 30', 'image 50', 'image 70']
    """
    count = len(test.names)
    places = [count * (2 * k + 1) // (2 * EXAMPLES) for k in range(EXAMPLES)]
    return [test.names[place] for place in dict.fromkeys(places)]


def _examples(test: Scenes, names: list[str]) -> list[Example]:
    places = [test.names.index(name) for name in names]
    return [
        Example(name, jpeg(test.images[place]), label_png(test.labels[place]))
        for name, place in zip(names, places, strict=True)
    ]
