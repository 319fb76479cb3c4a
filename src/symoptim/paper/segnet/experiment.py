"""SegNet on road scenes: two rounds that choose every update's rate, then repeats at that rate."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, cast, get_args

import torch
from torch import nn

from symoptim.errors import DataError, OptionError
from symoptim.paper.choices import Loss, ProfileName, SceneDataChoice, SceneDataName, require_choice
from symoptim.paper.data.camvid import has_camvid
from symoptim.paper.data.classes import CLASSES
from symoptim.paper.data.datasets import digest_of, load_scenes
from symoptim.paper.data.scenes import Scenes, SceneSplit
from symoptim.paper.records.database import Plain, Records
from symoptim.paper.records.findings import Example, write_examples
from symoptim.paper.records.runs import RunRow
from symoptim.paper.records.selection import NO_RATE, candidate, rank
from symoptim.paper.runner import Experiment, GivenUp, Item, LeftOut, Phase, ReadRuns, Request, Task
from symoptim.paper.segnet.images import jpeg, label_png
from symoptim.paper.segnet.labels import class_weights
from symoptim.paper.segnet.protocol import SegNetProtocol, segnet_protocol
from symoptim.paper.segnet.runs import Planned, full_run, network_of, search_runs
from symoptim.paper.segnet.training import SceneTraining
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from symoptim.paper.updates import info

Network = Callable[[], nn.Module]
EXAMPLES = 4
"""Test images that are kept to be looked at, evenly spread over the set."""


@dataclass(frozen=True, slots=True)
class SegNetExperiment(Experiment):
    """A protocol with its data; ``compiled`` steps go through ``torch.compile``."""

    name: ClassVar[str] = "segnet"
    loss: ClassVar[Loss] = "mean"
    protocol: SegNetProtocol
    data: SceneSplit
    device: torch.device
    profile: ProfileName = "quick"
    data_name: SceneDataName = "roads"
    compiled: bool = False

    @property
    def folder(self) -> str:
        """Name of the folder its results go to by default."""
        return f"{self.data_name}-{self.profile}"

    def configuration(self) -> Plain:
        """All that the results depend on."""
        return {
            "profile": self.profile,
            "data": self.data_name,
            "digest": digest_of(tensor for part in self.data for tensor in (part.images, part.labels)),
            "images": [len(part.names) for part in self.data],
            "protocol": self.protocol.as_dict(),
            "compiled": self.compiled,
            "titles": {name: info(name).title for name in self.protocol.updates},
            "words": {name: SCENE_OPTIMIZERS[name].words for name in self.protocol.updates},
        }

    def prepare(self, records: Records) -> None:
        """Record some test images, to be looked at."""
        test = self.data.test
        numbers = [test.names.index(name) for name in example_names(test)]
        examples = [Example(test.names[k], jpeg(test.images[k]), label_png(test.labels[k])) for k in numbers]
        with records.writing() as connection:
            write_examples(connection, examples)

    def expected(self) -> list[Task]:
        """The search, and full runs at as many rates as get through it; which ones makes no difference."""
        protocol = self.protocol
        full = [self._full_task(0)] * (protocol.rates_in_full + protocol.repeats - 1) * len(protocol.updates)
        return [*map(self._task, search_runs(protocol)), *full]

    def phases(self, runs: ReadRuns) -> list[Iterator[Item]]:
        """A single sequence: one network at a time keeps a device busy."""
        data = SceneSplit(*(scenes.to(self.device) for scenes in self.data))
        return [self._rounds(data, network_of(self.protocol, data.train), runs)]

    def _rounds(self, data: SceneSplit, network: Network, runs: ReadRuns) -> Iterator[Item]:
        """Short runs at every rate; full ones at the best of these; repeats at the best of those."""
        protocol = self.protocol
        for planned in search_runs(protocol):
            yield self._phase(planned, data, network)
        for update in protocol.updates:
            # Without a search the rate is the registered one.
            rates = _ranked(runs, "search", update) if protocol.rates else [SCENE_OPTIMIZERS[update].rate]
            for rate in rates[: protocol.rates_in_full]:
                yield self._phase(full_run(protocol, update, rate, 0), data, network)
            spare = max(0, protocol.rates_in_full - max(1, len(rates)))
            yield LeftOut(spare, spare * self._full_task(0).work)
            if not rates:
                yield self._without_rate(update, 0)
        best = {update: _ranked(runs, "full", update) for update in protocol.updates}
        for repeat in range(1, protocol.repeats):  # for a fair comparison wherever it is stopped
            for update, rates in best.items():
                if rates:
                    yield self._phase(full_run(protocol, update, rates[0], repeat), data, network)
                else:
                    yield self._without_rate(update, repeat)

    def _phase(self, planned: Planned, data: SceneSplit, network: Network) -> Phase:
        name, labels, run = planned
        shown = example_names(data.test) if labels["phase"] == "full" else []
        return Phase(
            name,
            {name: self._task(planned)},
            lambda: SceneTraining(name, run, network, data, examples=shown, compiled=self.compiled),
        )

    def _task(self, planned: Planned) -> Task:
        """Work is counted in whole images: of crops only their share."""
        name, labels, run = planned
        images = len(self.data.train.names) // run.batch * run.batch
        crop, (height, width) = run.augmentation.crop, self.data.train.labels.shape[1:]
        share = crop[0] * crop[1] / (height * width) if crop else 1.0
        return Task(RunRow(name, labels, run.as_dict()), max(1, round(images * share)), run.stopping.maximum)

    def _full_task(self, repeat: int) -> Task:
        """A full run, of whatever update at whatever rate: all have the same work to do."""
        return self._task(full_run(self.protocol, self.protocol.updates[0], 1.0, repeat))

    def _without_rate(self, update: str, repeat: int) -> GivenUp:
        labels = {"phase": "full", "update": update, "rate": None, "repeat": repeat}
        one = self._full_task(repeat)
        return GivenUp(
            Task(RunRow(f"full/{update}/none/{repeat}", labels, {}), one.images, one.epochs), NO_RATE
        )


def _ranked(runs: ReadRuns, phase: str, update: str) -> list[float]:
    """Rates of an update by how the first runs of a round did on the validation set."""
    mine = [run for run in runs(phase) if run.labels["update"] == update and not run.labels.get("repeat")]
    return rank(map(candidate, mine))


def example_names(test: Scenes) -> list[str]:
    """Names of the test images to look at.

    >>> names = tuple(f"image {k}" for k in range(80))
    >>> example_names(Scenes(torch.empty(80), torch.empty(80), names))
    ['image 10', 'image 30', 'image 50', 'image 70']
    """
    count = len(test.names)
    numbers = [count * (2 * k + 1) // (2 * EXAMPLES) for k in range(EXAMPLES)]
    return [test.names[number] for number in dict.fromkeys(numbers)]


def prepare(request: Request) -> SegNetExperiment:
    """The experiment that was asked for, with its scenes; by default in full on a GPU, quick on a CPU."""
    where, changes = request.device, dict(request.changes)
    compiled = changes.pop("compiled", False)
    if compiled and where.type != "cuda":
        raise OptionError(f"--compile is for CUDA devices, this is {where}: leave it out")
    profile = cast(ProfileName, request.profile or ("paper" if where.type == "cuda" else "quick"))
    protocol = segnet_protocol(profile, **changes)
    name = _scenes_name(request, profile)
    data = load_scenes(name, request.data_dir, protocol.size)
    if len(data.train.names) < protocol.batch:
        raise DataError(
            f"there are {len(data.train.names)} training images, and a batch takes {protocol.batch}: get more"
        )
    class_weights(data.train.labels, len(CLASSES), protocol.weighting)  # refuses classes without pixels
    return SegNetExperiment(protocol, data, where, profile, name, compiled)


def _scenes_name(request: Request, profile: ProfileName) -> SceneDataName:
    """The scenes that were asked for, or the best there are; in full the experiment takes CamVid for auto."""
    choice, directory = request.data or "auto", request.data_dir
    require_choice("data set", choice, get_args(SceneDataChoice))
    if choice == "roads" and directory is not None:
        raise OptionError(f"drawn scenes need no files: leave out --data-dir {directory}, or --data roads")
    if choice != "auto":
        return cast(SceneDataName, choice)
    if has_camvid(directory) or directory is not None:  # a named folder is read, or refused
        return "camvid"
    how = "CamVid is free for research and not downloaded: give --data-dir, or set SYMOPTIM_DATA"
    if profile == "paper":
        raise DataError(f"there is no CamVid. {how}; --profile quick can do without")
    request.notice(f"no CamVid here, so these are drawn road scenes. {how}.")
    return "roads"
