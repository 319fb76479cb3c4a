"""Carry out an experiment: train what its records do not have yet, and record it as it happens.

A process that ends, however it ends, can be followed by another with the same experiment and the same
records: it goes on at the last checkpoint, and the numbers come out the same, bit for bit.
"""

import gc
import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from symoptim.ensemble.ensemble import Result
from symoptim.ensemble.epoch_rules import Epoch
from symoptim.paper.choices import Fields, Loss
from symoptim.paper.data.sources import ProgressBar
from symoptim.paper.records.database import Plain, Records
from symoptim.paper.records.findings import Finding
from symoptim.paper.records.runs import (
    Ending,
    RecordedRun,
    RunRow,
    have_ended,
    read_runs,
    resume,
    write_epoch,
)
from symoptim.support.devices import describe_device
from symoptim.support.provenance import code_digest

CHECKPOINT_SECONDS = 5.0  # work that a killed process loses at most, besides the epoch it was in ...
CHECKPOINT_SHARE = 0.02  # ... or more where saving takes long: it may take this share of the time
NAP = 2e-4  # seconds; epochs take a hundred times as long

State = dict[str, Any]
Ready = Callable[[], bool]
"""Tells whether a training can go on without waiting."""
ReadRuns = Callable[[str], list[RecordedRun]]
"""``phase -> runs`` as they are recorded by now."""


class Training(Protocol):
    """What can be recorded: an ensemble, or a network on its own."""

    running: list[str]

    @property
    def is_running(self) -> bool:
        """Whether any run has epochs left."""
        ...

    @property
    def epochs(self) -> int:
        """Number of epochs done."""
        ...

    def start_epoch(self) -> None:
        """Put the next epoch on its way, where that can be done without waiting for it."""
        ...

    def is_ready(self) -> bool:
        """Whether nothing would be gained by waiting with :meth:`train_epoch`."""
        ...

    def train_epoch(self) -> Mapping[str, Result]:
        """Train every run that is running for one epoch; the one that was started, if one was."""
        ...

    def state_dict(self) -> State:
        """All that is needed to go on."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Go on from there."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A run to be recorded: what it is, the images it sees in an epoch, and its epochs at most."""

    row: RunRow
    images: int
    epochs: int

    @property
    def work(self) -> int:
        """Images it sees if it is not stopped early."""
        return self.images * self.epochs


class Phase(NamedTuple):
    """Runs that train together, from where the records have them to their end."""

    name: str
    tasks: Mapping[str, Task]
    make: Callable[[], Training]


class GivenUp(NamedTuple):
    """A run that cannot be trained, and why: it is recorded as one that diverged."""

    task: Task
    reason: str


class LeftOut(NamedTuple):
    """Runs that were expected and are not needed."""

    runs: int
    work: int


Item = Phase | GivenUp | LeftOut


class Experiment(ABC):
    """An experiment of the paper: its protocol, data and phases; :func:`carry_out` trains and records it."""

    name: ClassVar[str]
    """In the records."""
    loss: ClassVar[Loss]
    """What the rates multiply: the gradient of the loss summed over a batch, or of its mean."""
    device: torch.device

    @property
    @abstractmethod
    def folder(self) -> str:
        """Name of the folder its results go to by default."""

    @abstractmethod
    def configuration(self) -> Plain:
        """All that the results depend on, as plain data; the records keep it."""

    @abstractmethod
    def expected(self) -> list[Task]:
        """Everything there may be to train."""

    @abstractmethod
    def phases(self, runs: ReadRuns) -> list[Iterator[Item]]:
        """Sequences of phases; within one, the next is computed when the one before has ended.

        Args:
            runs: reads what is recorded by then, for phases that depend on it.

        Returns:
            The sequences, which may be trained side by side.
        """

    def prepare(self, records: Records) -> None:  # noqa: B027 - most have nothing to do here
        """Record what belongs to the experiment as a whole."""


class Progress(NamedTuple):
    """How far an experiment is; work is counted in images seen."""

    title: str = "preparing"
    """What trained last."""
    epochs: Mapping[str, Epoch] = {}
    """Its last epoch, by run."""
    runs_done: int = 0
    runs: int = 0
    work_done: int = 0
    work: int = 0
    skipped: int = 0
    """Work that takes no time: it was done before, or is not needed."""

    def __str__(self) -> str:
        done = (self.work_done + self.skipped) / self.work if self.work else 0.0
        return f"{done:4.0%}, {self.runs_done} of {self.runs} runs, {self.title}"


Watch = Callable[[Progress], None]


class Request(NamedTuple):
    """Options of an experiment: profile, data, device, changes of the protocol, callbacks."""

    profile: str | None
    data: str | None
    data_dir: Path | None
    device: torch.device
    changes: Fields
    notice: Callable[[str], None]
    download: ProgressBar | None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came while an experiment was trained; its records can be taken up."""


def carry_out(experiment: Experiment, path: Path, watch: Watch | None = None) -> bool:
    """Train whatever the records at ``path`` do not have yet; whether anything was left to do.

    Ctrl-C raises :class:`Interrupted`, which says where the records are.
    """
    code = code_digest(type(experiment).__module__)
    where = describe_device(experiment.device)
    with Records(path, torch=torch.__version__, device=where, code=code) as records:
        if not records.begin(experiment.name, experiment.configuration()):
            return False
        try:
            train(experiment, records, watch)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped. {path} keeps what is done") from None
    return True


def train(experiment: Experiment, records: Records, watch: Watch | None = None) -> None:
    """Train into open records: on CUDA all sequences at once, for none fills the device, else one by one."""
    experiment.prepare(records)
    recorder = Recorder(records, watch)
    recorder.expect(experiment.expected())
    sequences = experiment.phases(lambda phase: read_runs(records.connection, phase))
    works = [recorder.follow(sequence) for sequence in sequences]
    for in_flight in [works] if experiment.device.type == "cuda" else [[work] for work in works]:
        interleave(in_flight)
    records.finish()


class Recorder:
    """Trains into a records file; what it learns of how long saving takes holds for all its runs."""

    def __init__(self, records: Records, watch: Watch | None = None) -> None:
        """Record there, and call ``watch`` after every change of progress."""
        self.records = records
        self.watch = watch
        self.progress = Progress()
        self.patience = CHECKPOINT_SECONDS

    def expect(self, tasks: Iterable[Task]) -> None:
        """Set the totals of the progress."""
        works = [task.work for task in tasks]
        self._tell(self.progress._replace(runs=len(works), work=sum(works)))

    def _skip(self, *, runs: int, work: int) -> None:
        """Leave out work that takes no time: done work would count as speed."""
        now = self.progress
        self._tell(now._replace(runs_done=now.runs_done + runs, skipped=now.skipped + work))

    def _tell(self, progress: Progress) -> None:
        self.progress = progress
        if self.watch is not None:
            self.watch(progress)

    def follow(self, sequence: Iterable[Item]) -> Iterator[Ready]:
        """Do a sequence of phases, an epoch at a time."""
        for item in sequence:
            match item:
                case Phase():
                    yield from self.train(item)
                case GivenUp():
                    self._give_up(item)
                case LeftOut():
                    self._skip(runs=item.runs, work=item.work)

    def _give_up(self, item: GivenUp) -> None:
        name = item.task.row.run
        if not have_ended(self.records, [name]):
            resume(self.records, name, [item.task.row])
            write_epoch(self.records, name, {}, [Ending(name, 0, item.reason, diverged=True)], None)
        self._skip(runs=1, work=item.task.work)

    def train(self, phase: Phase) -> Iterator[Ready]:
        """Train a phase from where the records have it to its end, an epoch at a time.

        Args:
            phase: the runs.

        Yields:
            While an epoch is on its way: what tells whether it has arrived.
        """
        tasks = phase.tasks
        everything = sum(task.work for task in tasks.values())
        if have_ended(self.records, tasks):
            self._skip(runs=len(tasks), work=everything)
            return
        saved = resume(self.records, phase.name, [task.row for task in tasks.values()])
        gc.collect()  # a training that has ended is a cycle of references, and may hold the memory of a GPU
        training = phase.make()
        if saved is not None:
            training.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True, map_location="cpu"))
            running = [tasks[name] for name in training.running]
            left = sum(task.work - training.epochs * task.images for task in running)
            self._skip(runs=len(tasks) - len(running), work=everything - left)
        yield from self._train(training, phase)

    def _train(self, training: Training, phase: Phase) -> Iterator[Ready]:
        saved_at = time.monotonic()
        training.start_epoch()
        while training.is_running:
            yield training.is_ready
            results = training.train_epoch()
            began = time.monotonic()
            saving = training.is_running and began - saved_at > self.patience
            state = _to_bytes(training) if saving else None
            if training.is_running:
                training.start_epoch()  # a device has work while this one is written down
            self._write(phase.name, results, state)
            if saving:
                saved_at = time.monotonic()
                self.patience = max(CHECKPOINT_SECONDS, (saved_at - began) / CHECKPOINT_SHARE)
            self._count(phase, results)

    def _write(self, ensemble: str, results: Mapping[str, Result], state: bytes | None) -> None:
        """Record an epoch, with everything that belongs to it, at once."""
        epochs = {name: result.epoch for name, result in results.items()}
        ended = {name: r.outcome for name, r in results.items() if r.outcome}
        endings = [Ending(name, epochs[name].number, *outcome) for name, outcome in ended.items()]
        findings = [Finding(name, *r.findings) for name, r in results.items() if r.findings]
        write_epoch(self.records, ensemble, epochs, endings, state, findings)

    def _count(self, phase: Phase, results: Mapping[str, Result]) -> None:
        """Count an epoch; what is left of runs that stop early is skipped."""
        now, tasks = self.progress, phase.tasks
        ended = [name for name, result in results.items() if result.outcome]
        spared = sum(tasks[name].work - results[name].epoch.number * tasks[name].images for name in ended)
        self._tell(
            now._replace(
                title=phase.name,
                epochs={name: result.epoch for name, result in results.items()},
                runs_done=now.runs_done + len(ended),
                work_done=now.work_done + sum(tasks[name].images for name in results),
                skipped=now.skipped + spared,
            )
        )


def interleave(works: Iterable[Iterator[Ready]]) -> None:
    """Advance iterators by one step each, those that are ready, until all have ended.

    >>> seen: list[str] = []
    >>> def work(name: str, epochs: int) -> Iterator[Ready]:
    ...     for epoch in range(epochs):
    ...         seen.append(f"{name}{epoch}")
    ...         yield lambda: True
    >>> interleave([work("a", 3), work("b", 1)])
    >>> seen
    ['a0', 'b0', 'a1', 'a2']
    """
    waiting = {work: ready for work in works if (ready := next(work, None))}
    while waiting:
        those = [work for work, ready in waiting.items() if ready()]
        for work in those:
            ready = next(work, None)
            if ready:
                waiting[work] = ready
            else:
                del waiting[work]
        if not those:
            time.sleep(NAP)


def _to_bytes(training: Training) -> bytes:
    buffer = io.BytesIO()
    torch.save(training.state_dict(), buffer)
    return buffer.getvalue()
