"""How often a training is saved, and what is left to do when it is taken up; time is made up."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symoptim.ensemble.ensemble import Result
from symoptim.ensemble.epoch_rules import Epoch, Findings, Outcome
from symoptim.paper import runner
from symoptim.paper.records.database import Records
from symoptim.paper.records.findings import read_confusions
from symoptim.paper.records.runs import RunRow, read_runs
from symoptim.paper.runner import (
    CHECKPOINT_SECONDS,
    CHECKPOINT_SHARE,
    GivenUp,
    Phase,
    Ready,
    Recorder,
    Task,
    Training,
    interleave,
)
from tests.support.watchers import Counter


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Slow:
    """A training whose epochs take a second, and whose state takes as long to save as it is told."""

    def __init__(self, clock: Clock, *, epochs: int, saving: float = 0.0, name: str = "one") -> None:
        self.clock, self.last, self.saving, self.name = clock, epochs, saving, name
        self.running = [name]
        self.epochs = 0
        self.saved: list[int] = []

    @property
    def is_running(self) -> bool:
        return bool(self.running)

    def start_epoch(self) -> None:
        pass

    def is_ready(self) -> bool:
        return True

    def train_epoch(self) -> Mapping[str, Result]:
        self.epochs += 1
        self.clock.now += 1.0
        epoch = Epoch(self.epochs, 0.1, 1 / self.epochs, math.nan, 0.5, math.nan)
        if self.epochs < self.last:
            return {self.name: Result(epoch, None)}
        self.running = []
        findings = Findings(7.5, {"test": [[1, 2], [3, 4]]}, {})
        return {self.name: Result(epoch, Outcome("enough", False), findings)}

    def state_dict(self) -> dict[str, Any]:
        self.clock.now += self.saving
        self.saved.append(self.epochs)
        return {"epochs": self.epochs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.epochs = state["epochs"]


def tasks(epochs: int, name: str = "one") -> dict[str, Task]:
    return {name: Task(RunRow(name, {"phase": "full"}, {}), 10, epochs)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    time = SimpleNamespace(monotonic=clock.monotonic, sleep=lambda seconds: None)
    monkeypatch.setattr("symoptim.paper.runner.time", time)
    return clock


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Records(tmp_path / "records.sqlite", torch="2.0", device="cpu") as records:
        records.begin("segnet", {})
        yield records


def train(recorder: Recorder, name: str, tasks: Mapping[str, Task], make: Callable[[], Training]) -> None:
    interleave([recorder.train(Phase(name, tasks, make))])


def saved_epochs(records: Records, clock: Clock, *, epochs: int, saving: float) -> list[int]:
    training = Slow(clock, epochs=epochs, saving=saving)
    train(Recorder(records, Counter()), "one", tasks(epochs), lambda: training)
    return training.saved


def test_a_state_that_is_saved_at_once_is_saved_every_few_seconds(records: Records, clock: Clock) -> None:
    assert CHECKPOINT_SECONDS == 5
    assert saved_epochs(records, clock, epochs=20, saving=0.0) == [6, 12, 18]


def test_a_state_that_takes_long_to_save_is_saved_less_often(records: Records, clock: Clock) -> None:
    saved = saved_epochs(records, clock, epochs=200, saving=1.0)
    assert saved[0] == 6
    between = {later - earlier for earlier, later in itertools.pairwise(saved)}
    assert between == {math.floor(1 / CHECKPOINT_SHARE) + 1}  # a second of it after so many of training


def test_how_long_saving_takes_is_remembered_from_run_to_run(records: Records, clock: Clock) -> None:
    recorder = Recorder(records, Counter())
    first = Slow(clock, epochs=10, saving=1.0)
    second = Slow(clock, epochs=60, saving=1.0, name="two")
    train(recorder, "one", tasks(10), lambda: first)
    train(recorder, "two", tasks(60, "two"), lambda: second)
    assert (first.saved, second.saved) == ([6], [math.floor(1 / CHECKPOINT_SHARE) + 1])


def test_the_next_epoch_is_on_its_way_before_one_is_written_down(
    records: Records, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    training = Slow(clock, epochs=2)
    monkeypatch.setattr(training, "start_epoch", lambda: told.append("started"))
    write = runner.write_epoch

    def written(*arguments: Any) -> None:
        told.append("written")
        write(*arguments)

    monkeypatch.setattr(runner, "write_epoch", written)
    train(Recorder(records, Counter()), "one", tasks(2), lambda: training)
    assert told == ["started", "started", "written", "written"]


def test_who_is_ready_goes_on_while_another_is_waited_for() -> None:
    told: list[str] = []
    looked = iter([False, False, True])

    def slow() -> Iterator[Ready]:
        yield lambda: next(looked)
        told.append("slow")

    def fast() -> Iterator[Ready]:
        for turn in range(4):
            told.append(f"fast {turn}")
            yield lambda: True

    interleave([slow(), fast()])
    assert told == ["fast 0", "fast 1", "fast 2", "slow", "fast 3"]


def test_the_last_epoch_is_not_saved(records: Records, clock: Clock) -> None:
    assert saved_epochs(records, clock, epochs=6, saving=0.0) == []


def interrupt(records: Records, *, epochs: int, after: int, clock: Clock) -> None:
    training = Slow(clock, epochs=epochs)
    with pytest.raises(KeyboardInterrupt):
        train(Recorder(records, Counter(patience=after)), "one", tasks(epochs), lambda: training)


def test_what_was_done_before_the_checkpoint_is_not_done_again(records: Records, clock: Clock) -> None:
    interrupt(records, epochs=20, after=8, clock=clock)
    before, watcher = clock.now, Counter()
    train(Recorder(records, watcher), "one", tasks(20), lambda: Slow(clock, epochs=20))
    assert clock.now - before == 20 - 6
    assert watcher.seen == (1, 200)
    (run,) = read_runs(records.connection, "full")
    assert [epoch.loss for epoch in run.curve] == [1 / number for number in range(1, 21)]


def test_what_a_run_leaves_is_recorded_with_its_end(records: Records, clock: Clock) -> None:
    interrupt(records, epochs=3, after=2, clock=clock)
    assert read_confusions(records.connection, "test") == {}
    train(Recorder(records, Counter()), "one", tasks(3), lambda: Slow(clock, epochs=3))
    assert read_confusions(records.connection, "test") == {"one": [[1, 2], [3, 4]]}
    (run,) = read_runs(records.connection, "full")
    assert (run.seconds, run.reason) == (7.5, "enough")


def test_work_that_an_early_end_spares_is_counted_as_done(records: Records, clock: Clock) -> None:
    watcher = Counter()
    train(Recorder(records, watcher), "one", tasks(20), lambda: Slow(clock, epochs=4))
    assert watcher.seen == (1, 200)


def test_what_has_ended_is_not_even_prepared(records: Records, clock: Clock) -> None:
    train(Recorder(records, Counter()), "one", tasks(3), lambda: Slow(clock, epochs=3))
    watcher = Counter()

    def refuse() -> Slow:
        raise AssertionError("there is nothing to train")

    train(Recorder(records, watcher), "one", tasks(3), refuse)
    assert watcher.seen == (1, 30)


def test_a_run_that_is_given_up_has_diverged_without_an_epoch(records: Records) -> None:
    for _ in range(2):
        watcher = Counter()
        interleave([Recorder(records, watcher).follow([GivenUp(tasks(3)["one"], "no rate")])])
        assert watcher.seen == (1, 30)
    (run,) = read_runs(records.connection, "full")
    assert (run.reason, run.diverged, run.curve, run.seconds) == ("no rate", True, (), None)
