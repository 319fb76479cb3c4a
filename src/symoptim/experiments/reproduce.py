"""Carry out a protocol: selection, then full runs, shape by shape, everything recorded as it happens.

A process that ends, however it ends, can be followed by another with the same protocol and the same
records: it goes on at the last checkpoint, and the numbers come out the same, bit for bit.
"""

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol as Interface

import torch

from symoptim.data.split import Split
from symoptim.engine.training import Ensemble, Result
from symoptim.experiments.plan import (
    Cell,
    Chosen,
    Planned,
    cells,
    full_labels,
    full_runs,
    network_of,
    selection_runs,
)
from symoptim.experiments.protocol import Protocol
from symoptim.experiments.selection import Candidate, choose
from symoptim.records.ledger import Ending, EpochRow, RunRow, has_ended, take_up, write_epoch
from symoptim.records.reading import read_runs
from symoptim.records.store import Records

CHECKPOINT_SECONDS = 5.0  # work that a killed process loses at most, besides the epoch it was in


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


@dataclass(frozen=True, slots=True)
class Experiment:
    """A protocol with all that carrying it out takes."""

    protocol: Protocol
    data: Split
    device: torch.device
    records: Records
    watcher: Watcher

    def carry_out(self) -> None:
        """Train whatever the records do not have yet."""
        everything = [
            planned
            for cell in cells(self.protocol)
            for planned in (
                *selection_runs(self.protocol, cell).values(),
                *full_runs(self.protocol, cell, lambda _update, _repeat: self.protocol.rates[0]).values(),
            )
        ]
        self.watcher.expect(runs=len(everything), work=sum(map(_most_work, everything)))
        for cell in cells(self.protocol):
            self._train(cell, "selection", selection_runs(self.protocol, cell))
            chosen = chosen_rates(self.records, cell)
            self._give_up_without_rate(cell, chosen)
            self._train(cell, "full", full_runs(self.protocol, cell, chosen))
        self.records.finish()

    def _give_up_without_rate(self, cell: Cell, chosen: Chosen) -> None:
        """Full runs for which every candidate rate diverged count as diverged; they are not trained."""
        for name, labels in full_labels(self.protocol, cell).items():
            if chosen(labels.update, labels.repeat) is not None:
                continue
            if not has_ended(self.records, [name]):
                take_up(self.records, name, [RunRow(name, labels._asdict(), {})])
                ending = Ending(name, 0, "every candidate rate diverged", diverged=True)
                write_epoch(self.records, name, [], [ending], None)
            self.watcher.skip(runs=1, work=self.protocol.stopping.maximum * self.protocol.train)

    def _train(self, cell: Cell, phase: str, planned: Mapping[str, Planned]) -> None:
        """Train the runs of a cell together, from where the records have them to their end."""
        if has_ended(self.records, planned):
            self.watcher.skip(runs=len(planned), work=sum(map(_most_work, planned.values())))
            return
        ensemble = f"{phase}/{cell}"
        rows = [RunRow(name, plan.labels, plan.run.as_dict()) for name, plan in planned.items()]
        saved = take_up(self.records, ensemble, rows)
        training = Ensemble(
            {name: plan.run for name, plan in planned.items()},
            network_of(self.protocol, cell, self.data),
            self.data,
            batch=self.protocol.batch,
            device=self.device,
            test=phase == "full",
        )
        if saved is not None:
            training.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True, map_location="cpu"))
            running = {name: planned[name] for name in training.running}
            left = sum(_most_work(p) - training.epochs * p.run.train for p in running.values())
            done = sum(map(_most_work, planned.values())) - left
            self.watcher.skip(runs=len(planned) - len(running), work=done)
        _Recorder(self, ensemble, planned).follow(training)


def chosen_rates(records: Records, cell: Cell) -> Chosen:
    """What the recorded selection of a cell chose, by the error after its last epoch."""
    candidates: dict[tuple[str, int], list[Candidate]] = {}
    for run in read_runs(records.connection, "selection"):
        labels = run.labels
        if (labels["architecture"], labels["depth"]) == (cell.architecture, cell.depth):
            candidate = Candidate(labels["rate"], run.curve[-1].validation_error, run.diverged)
            candidates.setdefault((labels["update"], labels["repeat"]), []).append(candidate)
    chosen = {key: choose(those) for key, those in candidates.items()}
    return lambda update, repeat: chosen[update, repeat]


@dataclass(slots=True)
class _Recorder:
    """Writes down what an ensemble does, epoch by epoch."""

    experiment: Experiment
    ensemble: str
    planned: Mapping[str, Planned]

    def follow(self, training: Ensemble) -> None:
        """Train to the end."""
        saved_at = time.monotonic()
        while training.is_running:
            results = training.train_epoch()
            state = None
            if training.is_running and time.monotonic() - saved_at > CHECKPOINT_SECONDS:
                state, saved_at = _to_bytes(training), time.monotonic()
            rows = [EpochRow(name, *result.epoch) for name, result in results.items()]
            endings = [
                Ending(name, result.epoch.number, *result.outcome)
                for name, result in results.items()
                if result.outcome
            ]
            write_epoch(self.experiment.records, self.ensemble, rows, endings, state)
            seen = sum(self.planned[name].run.train for name in results)
            self.experiment.watcher.epoch(self.ensemble, results, work=seen)
            self.experiment.watcher.skip(runs=0, work=sum(map(self._spared, endings)))

    def _spared(self, ending: Ending) -> int:
        """Images that a run which ended early will never see."""
        run = self.planned[ending.run].run
        return run.train * (run.stopping.maximum - ending.epochs)


def _most_work(planned: Planned) -> int:
    """Images a run sees if it is not stopped early."""
    return planned.run.train * planned.run.stopping.maximum


def _to_bytes(training: Ensemble) -> bytes:
    buffer = io.BytesIO()
    torch.save(training.state_dict(), buffer)
    return buffer.getvalue()
