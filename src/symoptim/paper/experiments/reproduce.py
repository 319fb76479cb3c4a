"""Carry out a protocol: selection, then full runs of every shape, everything recorded as it happens.

On a CPU one shape follows the other; on CUDA all are in flight at once, for none fills the device alone.

A process that ends, however it ends, can be followed by another with the same protocol and the same
records: it goes on at the last checkpoint, and the numbers come out the same, bit for bit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from symoptim.ensemble.ensemble import Ensemble
from symoptim.ensemble.images import Split
from symoptim.paper.experiments.plan import (
    Cell,
    Chosen,
    Planned,
    cells,
    full_labels,
    full_runs,
    network_of,
    selection_runs,
)
from symoptim.paper.experiments.protocol import Protocol
from symoptim.paper.experiments.recording import Ready, Recorder, Task, Watcher, take_turns
from symoptim.paper.records.ledger import RunRow
from symoptim.paper.records.reading import read_runs
from symoptim.paper.records.selection import NO_RATE, Candidate, candidate, choose
from symoptim.paper.records.store import Records


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
            _task(name, planned)
            for cell in cells(self.protocol)
            for name, planned in (
                *selection_runs(self.protocol, cell).items(),
                *full_runs(self.protocol, cell, lambda _update, _repeat: self.protocol.rates[0]).items(),
            )
        ]
        self.watcher.expect(runs=len(everything), work=sum(task.work for task in everything))
        works = [self._trained(cell) for cell in cells(self.protocol)]
        for in_flight in [works] if self.device.type == "cuda" else [[work] for work in works]:
            take_turns(in_flight)
        self.records.finish()

    def _trained(self, cell: Cell) -> Iterator[Ready]:
        """Selection and full runs of one shape; a turn is an epoch."""
        yield from self._phase(cell, "selection", selection_runs(self.protocol, cell))
        chosen = chosen_rates(self.records, cell)
        self._give_up_without_rate(cell, chosen)
        yield from self._phase(cell, "full", full_runs(self.protocol, cell, chosen))

    def _give_up_without_rate(self, cell: Cell, chosen: Chosen) -> None:
        """Full runs for which every candidate rate diverged count as diverged; they are not trained."""
        for name, labels in full_labels(self.protocol, cell).items():
            if chosen(labels.update, labels.repeat) is not None:
                continue
            row = RunRow(name, labels._asdict(), {})
            task = Task(row, self.protocol.train, self.protocol.stopping.maximum)
            Recorder(self.records, self.watcher).give_up(name, task, NO_RATE)

    def _phase(self, cell: Cell, phase: str, planned: Mapping[str, Planned]) -> Iterator[Ready]:
        """Train the runs of a cell together, from where the records have them to their end."""
        network = network_of(self.protocol, cell, self.data)
        return Recorder(self.records, self.watcher).trained(
            f"{phase}/{cell}",
            {name: _task(name, plan) for name, plan in planned.items()},
            lambda: Ensemble(
                {name: plan.run for name, plan in planned.items()},
                network,
                self.data,
                batch=self.protocol.batch,
                device=self.device,
                test=phase == "full",
            ),
        )


def chosen_rates(records: Records, cell: Cell) -> Chosen:
    """What the recorded selection of a cell chose, by the error after its last epoch."""
    candidates: dict[tuple[str, int], list[Candidate]] = {}
    for run in read_runs(records.connection, "selection"):
        labels = run.labels
        if (labels["architecture"], labels["depth"]) == (cell.architecture, cell.depth):
            candidates.setdefault((labels["update"], labels["repeat"]), []).append(candidate(run))
    chosen = {key: choose(those) for key, those in candidates.items()}
    return lambda update, repeat: chosen[update, repeat]


def _task(name: str, planned: Planned) -> Task:
    run = planned.run
    return Task(RunRow(name, planned.labels, run.as_dict()), run.train, run.stopping.maximum)
