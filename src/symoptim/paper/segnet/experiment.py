"""Carry out the SegNet experiment: two rounds that choose every update's rate, then repeats at that rate."""

import gc
from dataclasses import dataclass

import torch

from symoptim.paper.data.scenes import Scenes, SceneSplit
from symoptim.paper.records.database import Records
from symoptim.paper.records.findings import Example, write_examples
from symoptim.paper.records.runs import RunRow, read_runs
from symoptim.paper.records.selection import NO_RATE, candidate, rank
from symoptim.paper.runner import Recorder, Task, Watcher
from symoptim.paper.segnet.images import jpeg, label_png
from symoptim.paper.segnet.protocol import SegNetProtocol
from symoptim.paper.segnet.runs import PlannedScenes, full_run, network_of, search_runs
from symoptim.paper.segnet.training import SceneTraining
from symoptim.paper.segnet.updates import SCENE_UPDATES

EXAMPLES = 4
"""Test images that are kept to be looked at, evenly spread over the set."""


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
        examples = example_names(self.data.test)
        with self.records.writing() as connection:
            write_examples(connection, _examples(self.data.test, examples))
        self._announce()
        work = _Work(self, Recorder(self.records, self.watcher), examples)
        work.search()
        work.final()
        work.repeat()
        self.records.finish()

    def _announce(self) -> None:
        """Tell the watcher how much there is to do; the rates of full runs make no difference to that."""
        protocol = self.protocol
        one = self.task(full_run(protocol, protocol.updates[0], 1.0, 0))
        full = [one] * (protocol.places + protocol.repeats - 1) * len(protocol.updates)
        everything = [*map(self.task, search_runs(protocol)), *full]
        self.watcher.expect(runs=len(everything), work=sum(task.work for task in everything))

    def task(self, planned: PlannedScenes) -> Task:
        """Work is counted in whole images: of crops only their share."""
        name, labels, run = planned
        images = len(self.data.train.names) // run.batch * run.batch
        crop, (height, width) = run.augmentation.crop, self.data.train.labels.shape[1:]
        share = crop[0] * crop[1] / (height * width) if crop else 1.0
        return Task(RunRow(name, labels, run.as_dict()), max(1, round(images * share)), run.stopping.maximum)


class _Work:
    """The three rounds."""

    def __init__(self, experiment: SegNetExperiment, recorder: Recorder, examples: list[str]) -> None:
        self.experiment, self.protocol = experiment, experiment.protocol
        self.recorder = recorder
        self.examples = examples
        self.data = SceneSplit(*(scenes.to(experiment.device) for scenes in experiment.data))
        self.network = network_of(self.protocol, self.data.train)

    def search(self) -> None:
        """Short runs at every rate of the grid."""
        for planned in search_runs(self.protocol):
            self._train(planned)

    def final(self) -> None:
        """Full runs at the rates that did best in the search, or at the registered one without a search."""
        for update in self.protocol.updates:
            ranked = self._ranked("search", update)
            rates = ranked if self.protocol.rates else [SCENE_UPDATES[update].rate]
            for rate in rates[: self.protocol.places]:
                self._train(full_run(self.protocol, update, rate, 0))
            self._leave_out(update, self.protocol.places - max(1, len(rates)))
            if not rates:
                self._give_up(update, 0)

    def repeat(self) -> None:
        """More full runs at the best rate; repeat by repeat, for a fair comparison wherever it is stopped."""
        best = {update: self._ranked("full", update) for update in self.protocol.updates}
        for repeat in range(1, self.protocol.repeats):
            for update, rates in best.items():
                if rates:
                    self._train(full_run(self.protocol, update, rates[0], repeat))
                else:
                    self._give_up(update, repeat)

    def _ranked(self, phase: str, update: str) -> list[float]:
        """Rates of an update by how the first runs of a round did on the validation set."""
        runs = read_runs(self.experiment.records.connection, phase)
        mine = [run for run in runs if run.labels["update"] == update and not run.labels.get("repeat")]
        return rank(map(candidate, mine))

    def _leave_out(self, update: str, places: int) -> None:
        """Full runs there will not be: fewer rates got through the search than there are places."""
        if places > 0:
            one = self.experiment.task(full_run(self.protocol, update, 1.0, 0))
            self.experiment.watcher.skip(runs=places, work=places * one.work)

    def _give_up(self, update: str, repeat: int) -> None:
        """Record a full run for which there is no rate."""
        name = f"full/{update}/none/{repeat}"
        labels = {"phase": "full", "update": update, "rate": None, "repeat": repeat}
        one = self.experiment.task(full_run(self.protocol, update, 1.0, repeat))
        self.recorder.give_up(name, Task(RunRow(name, labels, {}), one.images, one.epochs), NO_RATE)

    def _train(self, planned: PlannedScenes) -> None:
        gc.collect()  # a trainer that has ended is a cycle of references, and may hold the memory of a GPU
        name, labels, run = planned
        shown = self.examples if labels["phase"] == "full" else []
        compiled = self.experiment.compiled
        self.recorder.train(
            name,
            {name: self.experiment.task(planned)},
            lambda: SceneTraining(name, run, self.network, self.data, examples=shown, compiled=compiled),
        )


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
