"""Training that is written down as it happens, and goes on where the records have it.

Whatever trains epoch by epoch and can save its state will do. A process that ends, however it ends, can be
followed by another with the same plan and the same records: it goes on at the last checkpoint. Several
trainings can take turns: while epochs of some are on their way, one that has arrived is sent on and written
down.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Interface

import torch

from symoptim.ensemble.ensemble import Result
from symoptim.paper.records.findings import Finding
from symoptim.paper.records.ledger import Ending, EpochRow, RunRow, has_ended, take_up, write_epoch
from symoptim.paper.records.store import Records

CHECKPOINT_SECONDS = 5.0  # work that a killed process loses at most, besides the epoch it was in ...
CHECKPOINT_SHARE = 0.02  # ... or more where saving takes long: it may take this share of the time
NAP = 2e-4  # seconds; epochs take a hundred times as long

Ready = Callable[[], bool]
"""Tells whether a work can go on without waiting."""


class Watcher(Interface):
    """Somebody who is told how far things are; work is counted in images seen."""

    def expect(self, *, runs: int, work: int) -> None:
        """All there will be to do."""
        ...

    def skip(self, *, runs: int, work: int) -> None:
        """Part of it was done before, or is not needed: it takes no time."""
        ...

    def epoch(self, title: str, results: Mapping[str, Result], *, work: int) -> None:
        """An epoch of an ensemble has ended."""
        ...


class Training(Interface):
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

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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


@dataclass(slots=True)
class Recorder:
    """Trains into a records file, watched; what it learns of how long saving takes holds for all its runs."""

    records: Records
    watcher: Watcher
    patience: float = field(default_factory=lambda: CHECKPOINT_SECONDS)

    def train(self, ensemble: str, tasks: Mapping[str, Task], make: Callable[[], Training]) -> None:
        """Train runs together, from where the records have them to their end."""
        take_turns([self.trained(ensemble, tasks, make)])

    def trained(
        self, ensemble: str, tasks: Mapping[str, Task], make: Callable[[], Training]
    ) -> Iterator[Ready]:
        """Train runs together, from where the records have them to their end; a turn is an epoch.

        Args:
            ensemble: name of the runs together.
            tasks: the runs by name.
            make: prepares their training from the beginning.

        Yields:
            While an epoch is on its way: what tells whether it has arrived.
        """
        if has_ended(self.records, tasks):
            self.watcher.skip(runs=len(tasks), work=sum(task.work for task in tasks.values()))
            return
        saved = take_up(self.records, ensemble, [task.row for task in tasks.values()])
        training = make()
        if saved is not None:
            training.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True, map_location="cpu"))
            running = [tasks[name] for name in training.running]
            left = sum(task.work - training.epochs * task.images for task in running)
            done = sum(task.work for task in tasks.values()) - left
            self.watcher.skip(runs=len(tasks) - len(running), work=done)
        yield from self._follow(training, ensemble, tasks)

    def give_up(self, name: str, task: Task, reason: str) -> None:
        """Record a run that cannot be trained as one that diverged."""
        if not has_ended(self.records, [name]):
            take_up(self.records, name, [task.row])
            write_epoch(self.records, name, [], [Ending(name, 0, reason, diverged=True)], None)
        self.watcher.skip(runs=1, work=task.work)

    def _follow(self, training: Training, ensemble: str, tasks: Mapping[str, Task]) -> Iterator[Ready]:
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
            self._write(ensemble, results, state)
            if saving:
                saved_at = time.monotonic()
                self.patience = max(CHECKPOINT_SECONDS, (saved_at - began) / CHECKPOINT_SHARE)
            self.watcher.epoch(ensemble, results, work=sum(tasks[name].images for name in results))
            ended = {name: result.epoch for name, result in results.items() if result.outcome}
            spared = (tasks[name].work - epoch.number * tasks[name].images for name, epoch in ended.items())
            self.watcher.skip(runs=0, work=sum(spared))

    def _write(self, ensemble: str, results: Mapping[str, Result], state: bytes | None) -> None:
        """Record an epoch, with everything that belongs to it, at once."""
        rows = [EpochRow(name, *result.epoch) for name, result in results.items()]
        endings = [
            Ending(name, result.epoch.number, *result.outcome)
            for name, result in results.items()
            if result.outcome
        ]
        findings = [Finding(name, *r.findings) for name, r in results.items() if r.findings]
        write_epoch(self.records, ensemble, rows, endings, state, findings)


def take_turns(works: Iterable[Iterator[Ready]]) -> None:
    """Go on with one after the other, whichever is ready, until all have ended.

    >>> told: list[str] = []
    >>> def work(name: str, turns: int) -> Iterator[Ready]:
    ...     for turn in range(turns):
    ...         told.append(f"{name}{turn}")
    ...         yield lambda: True
    >>> take_turns([work("a", 3), work("b", 1)])
    >>> told
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
