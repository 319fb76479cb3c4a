"""Table 2: a selection of rates, then full runs, for every shape of network."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast, get_args

import torch

from symoptim.ensemble.ensemble import Ensemble
from symoptim.ensemble.images import Split
from symoptim.ensemble.registry import UPDATES
from symoptim.errors import DataError
from symoptim.paper.choices import DataChoice, DataName, Loss, ProfileName, require_choice
from symoptim.paper.data.datasets import digest_of, load
from symoptim.paper.records.database import Plain
from symoptim.paper.records.runs import RecordedRun, RunRow
from symoptim.paper.records.selection import NO_RATE, Candidate, candidate, choose
from symoptim.paper.runner import Experiment, GivenUp, Item, Phase, ReadRuns, Request, Task
from symoptim.paper.table2.protocol import Protocol, protocol_for
from symoptim.paper.table2.runs import (
    Chosen,
    Planned,
    Shape,
    full_labels,
    full_runs,
    network_of,
    selection_runs,
    shapes,
)


@dataclass(frozen=True, slots=True)
class Table2(Experiment):
    """A protocol with its data."""

    name: ClassVar[str] = "mnist"
    loss: ClassVar[Loss] = "sum"
    protocol: Protocol
    data: Split
    device: torch.device
    profile: ProfileName = "quick"
    data_name: DataName = "digits"

    @property
    def folder(self) -> str:
        """Name of the folder its results go to by default."""
        return f"{self.data_name}-{self.profile}"

    def configuration(self) -> Plain:
        """All that the results depend on."""
        return {
            "profile": self.profile,
            "data": self.data_name,
            "digest": digest_of(self.data),
            "protocol": self.protocol.as_dict(),
            "titles": {name: UPDATES[name].title for name in self.protocol.updates},
        }

    def expected(self) -> list[Task]:
        """Selection and full runs of all shapes; what rate they are at makes no difference."""
        rate = self.protocol.rates[0]
        return [
            _task(name, planned)
            for shape in shapes(self.protocol)
            for name, planned in (
                *selection_runs(self.protocol, shape).items(),
                *full_runs(self.protocol, shape, lambda _update, _repeat: rate).items(),
            )
        ]

    def phases(self, runs: ReadRuns) -> list[Iterator[Item]]:
        """A sequence for every shape."""
        data = self.data.to(self.device)
        return [self._of_shape(shape, data, runs) for shape in shapes(self.protocol)]

    def _of_shape(self, shape: Shape, data: Split, runs: ReadRuns) -> Iterator[Item]:
        """The selection, then full runs at the rates it chose; those without a rate have diverged."""
        yield self._phase(f"selection/{shape}", shape, data, selection_runs(self.protocol, shape), test=False)
        chosen = chosen_rates(runs("selection"), shape)
        for name, labels in full_labels(self.protocol, shape).items():
            if chosen(labels.update, labels.repeat) is None:
                row = RunRow(name, labels._asdict(), {})
                task = Task(row, self.protocol.train, self.protocol.stopping.maximum)
                yield GivenUp(task, NO_RATE)
        yield self._phase(f"full/{shape}", shape, data, full_runs(self.protocol, shape, chosen), test=True)

    def _phase(
        self, name: str, shape: Shape, data: Split, planned: Mapping[str, Planned], *, test: bool
    ) -> Phase:
        return Phase(
            name,
            {run: _task(run, plan) for run, plan in planned.items()},
            lambda: Ensemble(
                {run: plan.run for run, plan in planned.items()},
                network_of(self.protocol, shape, data),
                data,
                batch=self.protocol.batch,
                device=self.device,
                test=test,
            ),
        )


def chosen_rates(selection: Sequence[RecordedRun], shape: Shape) -> Chosen:
    """What the recorded selection of a shape chose, by the error after its last epoch."""
    candidates: dict[tuple[str, int], list[Candidate]] = {}
    for run in selection:
        labels = run.labels
        if (labels["architecture"], labels["depth"]) == (shape.architecture, shape.depth):
            candidates.setdefault((labels["update"], labels["repeat"]), []).append(candidate(run))
    chosen = {key: choose(those) for key, those in candidates.items()}
    return lambda update, repeat: chosen[update, repeat]


def _task(name: str, planned: Planned) -> Task:
    run = planned.run
    return Task(RunRow(name, planned.labels, run.as_dict()), run.train, run.stopping.maximum)


def prepare(request: Request) -> Table2:
    """The experiment that was asked for, with its images."""
    profile = cast(ProfileName, request.profile or "quick")
    protocol_for(profile, "mnist", **request.changes)  # refuses bad options before data are fetched
    name, images = _images(request, profile)
    protocol = protocol_for(profile, name, **request.changes)
    protocol.require_images(len(images.train_labels))
    return Table2(protocol, images, request.device, profile, name)


def _images(request: Request, profile: ProfileName) -> tuple[DataName, Split]:
    choice = request.data or "auto"
    require_choice("data set", choice, get_args(DataChoice))
    name = cast(DataName, "mnist" if choice == "auto" else choice)
    try:
        return name, load(name, request.data_dir, progress=request.download)
    except DataError as error:
        if choice != "auto" or profile == "paper" or request.data_dir is not None:
            raise
        request.notice(f"MNIST could not be had, so these are 8x8 digits. {error}")
        return "digits", load("digits")
