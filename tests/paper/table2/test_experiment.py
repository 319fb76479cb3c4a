"""The whole protocol on small data: what is recorded, and that interruptions change nothing."""

import contextlib
import dataclasses
import math
from pathlib import Path

import pytest
import torch

from symoptim.ensemble.run import EarlyStopping
from symoptim.ensemble.trainer import Trainer
from symoptim.paper.records.database import Records
from symoptim.paper.records.runs import Ending, Epoch, RunRow, read_runs, resume, write_epoch
from symoptim.paper.records.selection import Candidate, choose
from symoptim.paper.runner import Recorder, interleave, train
from symoptim.paper.table2.experiment import Table2, chosen_rates
from symoptim.paper.table2.protocol import Protocol
from symoptim.paper.table2.runs import Shape, selection_runs
from tests.support.sampling import one_in
from tests.support.small import small_data
from tests.support.watchers import Counter
from tests.support.written import everything, runs_of, set_checkpoints

SMALL = Protocol(
    updates=("sm", "adamw"),
    depths=(2, 3),
    repeats=1,
    batch=30,
    rates=(3e-2, 1e-2),
    selection_train=120,
    selection_validation=60,
    selection_epochs=5,
    train=180,
    validation=60,
    stopping=EarlyStopping(minimum=5, maximum=7),
)


def carry_out(path: Path, *, protocol: Protocol = SMALL, patience: int = 10**9) -> Counter:
    watcher = Counter(patience)
    with Records(path, torch=torch.__version__, device="cpu") as records:
        if records.begin("mnist", {"protocol": protocol.as_dict()}):
            train(Table2(protocol, small_data(torch.float32), torch.device("cpu")), records, watcher)
    return watcher


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "records.sqlite"
    watcher = carry_out(path)
    assert watcher.seen == watcher.expected
    return path


def test_every_run_is_recorded_to_its_end(undisturbed: Path) -> None:
    selection, full = runs_of(undisturbed, "selection"), runs_of(undisturbed, "full")
    assert (len(selection), len(full)) == (16, 16)
    for run in selection + full:
        assert run.has_ended
        assert [epoch.number for epoch in run.curve] == list(range(1, len(run.curve) + 1))
    assert {len(run.curve) for run in selection} == {5}
    assert {len(run.curve) for run in full if run.labels["schedule"] == "exponential"} == {7}
    assert {len(run.curve) for run in full if run.labels["schedule"] == "bold"} <= {6, 7}


def test_full_runs_start_at_the_rate_their_selection_chose(undisturbed: Path) -> None:
    candidates: dict[tuple[object, ...], list[Candidate]] = {}
    for run in runs_of(undisturbed, "selection"):
        key = tuple(run.labels[name] for name in ("architecture", "depth", "update", "repeat"))
        candidate = Candidate(run.labels["rate"], run.curve[-1].validation_error, run.diverged)
        candidates.setdefault(key, []).append(candidate)
    for run in runs_of(undisturbed, "full"):
        key = tuple(run.labels[name] for name in ("architecture", "depth", "update", "repeat"))
        assert run.configuration["rate"] == run.curve[0].rate == choose(candidates[key])


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["checkpoint after every epoch", "no checkpoint"])
@pytest.mark.parametrize("patience", one_in(2, [1, 3, 7, 8]))
def test_interrupted_and_taken_up_again_the_records_are_the_same(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, patience: int
) -> None:
    set_checkpoints(monkeypatch, seconds)
    path = tmp_path / "records.sqlite"
    with pytest.raises(KeyboardInterrupt):
        carry_out(path, patience=patience)
    for _ in range(3):
        with contextlib.suppress(KeyboardInterrupt):
            carry_out(path, patience=patience)
    watcher = carry_out(path)
    assert watcher.seen == watcher.expected
    assert everything(path) == everything(undisturbed)


def test_shapes_in_flight_together_leave_the_same_records(undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with Records(path, torch=torch.__version__, device="cpu") as records:
        records.begin("mnist", {"protocol": SMALL.as_dict()})
        experiment = Table2(SMALL, small_data(torch.float32), torch.device("cpu"))
        recorder = Recorder(records)
        sequences = experiment.phases(lambda phase: read_runs(records.connection, phase))
        interleave(map(recorder.follow, sequences))
    assert everything(path) == everything(undisturbed)


def test_what_is_finished_is_not_trained_again(undisturbed: Path) -> None:
    before = everything(undisturbed)
    watcher = carry_out(undisturbed, patience=1)
    assert watcher.seen == (0, 0)
    assert everything(undisturbed) == before


def test_the_selection_goes_by_the_error_after_the_last_epoch(tmp_path: Path) -> None:
    one = dataclasses.replace(SMALL, updates=("sm",), depths=(2,), architectures=("arch1",))
    path = tmp_path / "records.sqlite"
    with Records(path, torch="2", device="cpu") as records:
        records.begin("mnist", {})
        names = list(selection_runs(one, Shape("arch1", 2)).items())
        resume(records, "selection", [RunRow(name, planned.labels, {}) for name, planned in names])
        # The first candidate has the best epoch, the second the best end.
        for epoch, errors in ((1, (0.1, 0.4)), (2, (0.3, 0.2))):
            rows = {
                name: Epoch(epoch, 0.1, 1.0, 0.1, error, math.nan)
                for (name, _), error in zip(names, errors, strict=True)
            }
            endings = [Ending(name, 2, "done", False) for name, _ in names] if epoch == 2 else []
            write_epoch(records, "selection", rows, endings, None)
        assert (
            chosen_rates(read_runs(records.connection, "selection"), Shape("arch1", 2))("sm", 0)
            == one.rates[1]
        )


def test_batches_are_of_the_protocols_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: set[int] = set()
    step = Trainer._step

    def counted(self: Trainer, offsets: torch.Tensor) -> None:
        sizes.add(len(offsets))
        step(self, offsets)

    monkeypatch.setattr(Trainer, "_step", counted)
    with pytest.raises(KeyboardInterrupt):
        carry_out(tmp_path / "records.sqlite", patience=6)
    assert sizes == {30}


def test_runs_without_a_rate_that_trains_count_as_diverged(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    hopeless = dataclasses.replace(SMALL, updates=("b-sgd",), rates=(1e30,))
    for _ in range(2):
        watcher = carry_out(path, protocol=hopeless)
        assert watcher.seen == watcher.expected
    full = runs_of(path, "full")
    arch1 = [run for run in full if run.labels["architecture"] == "arch1"]
    assert len(arch1) == 4
    assert all(run.diverged and run.reason == "every candidate rate diverged" for run in arch1)
    assert all(run.diverged for run in runs_of(path, "selection") if run.labels["architecture"] == "arch1")
