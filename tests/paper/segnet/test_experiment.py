"""The SegNet experiment on small scenes: what is recorded."""

import dataclasses
import math
from pathlib import Path

import pytest

from symoptim.ensemble.ensemble import Result
from symoptim.ensemble.epoch_rules import Findings, Outcome
from symoptim.paper.records.findings import read_confusions, read_examples, read_pictures
from symoptim.paper.records.runs import RecordedRun, reading
from symoptim.paper.segnet.experiment import example_names
from symoptim.paper.segnet.images import label_png
from symoptim.paper.segnet.training import SceneTraining
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from tests.support.small_scenes import small_scenes
from tests.support.small_segnet import SMALL, carry_out
from tests.support.written import runs_of


def names(path: Path, phase: str) -> list[str]:
    return [run.run for run in runs_of(path, phase)]


def test_every_run_is_recorded_to_its_end(undisturbed_scenes: Path) -> None:
    rates = ("0.001", "0.02", "0.1")
    assert names(undisturbed_scenes, "search") == [
        f"search/{u}/{rate}" for u in SMALL.updates for rate in rates
    ]
    assert len(names(undisturbed_scenes, "full")) == 6
    assert names(undisturbed_scenes, "none") == []
    for phase, epochs in (("search", 2), ("full", 3)):
        for run in runs_of(undisturbed_scenes, phase):
            assert (run.reason, run.diverged) == ("all epochs done", False)
            assert [epoch.number for epoch in run.curve] == list(range(1, epochs + 1))
            assert run.configuration["rate"] == run.curve[0].rate == run.labels["rate"]
            assert run.seconds is not None
            assert run.seconds > 0


def test_scores_are_recorded_as_often_as_the_protocol_says(undisturbed_scenes: Path) -> None:
    for phase, measured in (("search", [2]), ("full", [2, 3])):
        for run in runs_of(undisturbed_scenes, phase):
            known = [epoch.number for epoch in run.curve if not math.isnan(epoch.validation_error)]
            assert known == measured
            assert not math.isnan(run.curve[-1].test_error)


def ranked(runs: list[RecordedRun], update: str) -> list[float]:
    """Rates of an update from the best validation score at the end to the worst."""
    scores = [(r.curve[-1].validation_error, -r.labels["rate"]) for r in runs if r.labels["update"] == update]
    return [-rate for _, rate in sorted(scores)]


def test_the_best_of_the_search_run_in_full_and_the_best_of_these_is_repeated(
    undisturbed_scenes: Path,
) -> None:
    full = runs_of(undisturbed_scenes, "full")
    first = [run for run in full if run.labels["repeat"] == 0]
    for update in SMALL.updates:
        finalists = [run.labels["rate"] for run in first if run.labels["update"] == update]
        assert finalists == ranked(runs_of(undisturbed_scenes, "search"), update)[:2]
        (again,) = [r for r in full if r.labels["update"] == update and r.labels["repeat"] == 1]
        assert again.labels["rate"] == ranked(first, update)[0]


def made_up(monkeypatch: pytest.MonkeyPatch, errors: dict[str, dict[float, tuple[float, float]]]) -> None:
    """Validation errors of an update at a rate, in the search and in full; runs with NaN diverge."""
    train_epoch = SceneTraining.train_epoch

    def measured(self: SceneTraining) -> dict[str, Result]:
        ((name, result),) = train_epoch(self).items()
        run = self.trainer.run
        error = errors[run.update][run.rate][run.stopping.maximum == SMALL.epochs]
        if math.isnan(error):
            self.running = []
            return {name: Result(result.epoch, Outcome("made up", diverged=True), Findings(1.0, {}, {}))}
        return {name: result._replace(epoch=result.epoch._replace(validation_error=error))}

    monkeypatch.setattr(SceneTraining, "train_epoch", measured)


def test_each_update_has_rates_of_its_own_and_scores_at_the_end_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {
        "un": {1e-3: (0.3, 0.1), 0.02: (0.2, 0.2), 0.1: (0.4, 0.0)},  # the best in full was no finalist
        "sm": {1e-3: (0.4, 0.0), 0.02: (0.1, 0.5), 0.1: (0.1, 0.5)},  # ties: larger rates first
    }
    made_up(monkeypatch, errors)
    path = tmp_path / "records.sqlite"
    watcher = carry_out(path, protocol=dataclasses.replace(SMALL, updates=("un", "sm")))
    assert watcher.seen == watcher.expected
    assert names(path, "full") == [
        "full/un/0.02/0",
        "full/un/0.001/0",
        "full/sm/0.1/0",
        "full/sm/0.02/0",
        "full/un/0.001/1",
        "full/sm/0.1/1",
    ]


def test_rates_that_diverge_are_not_repeated_and_what_cannot_be_trained_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = math.nan
    errors = {
        "un": {1e-3: (0.3, 0.2), 0.02: (0.2, nan), 0.1: (nan, 0.0)},  # the better finalist diverges
        "sm": {1e-3: (nan, 0.0), 0.02: (nan, 0.0), 0.1: (0.1, nan)},  # the only finalist does
    }
    made_up(monkeypatch, errors)
    path = tmp_path / "records.sqlite"
    for _ in range(2):
        watcher = carry_out(path, protocol=dataclasses.replace(SMALL, updates=("un", "sm")))
    assert watcher.seen == (0, 0)  # it is finished
    assert [(run.run, run.diverged) for run in runs_of(path, "full")] == [
        ("full/un/0.02/0", True),
        ("full/un/0.001/0", False),
        ("full/sm/0.1/0", True),
        ("full/un/0.001/1", False),
        ("full/sm/none/1", True),
    ]
    assert runs_of(path, "full")[-1].curve == ()


def test_updates_share_the_seed_of_a_repeat_and_nothing_else_shares_it(undisturbed_scenes: Path) -> None:
    seeds: dict[object, set[int]] = {}
    for run in runs_of(undisturbed_scenes, "search") + runs_of(undisturbed_scenes, "full"):
        seeds.setdefault(run.labels.get("repeat", "search"), set()).add(run.configuration["seed"])
    assert set(seeds) == {"search", 0, 1}
    assert all(len(those) == 1 for those in seeds.values())
    assert len(set.union(*seeds.values())) == 3


def test_findings_are_recorded_for_all_runs_and_pictures_for_full_ones(undisturbed_scenes: Path) -> None:
    everyone = names(undisturbed_scenes, "search") + names(undisturbed_scenes, "full")
    with reading(undisturbed_scenes) as connection:
        for part in ("train", "validation", "test"):
            pixels = getattr(small_scenes(), part).labels.numel()
            matrices = read_confusions(connection, part)
            assert sorted(matrices) == sorted(everyone)
            assert {sum(map(sum, matrix)) for matrix in matrices.values()} == {pixels}
        for name in everyone:
            pictures = read_pictures(connection, name)
            assert set(pictures) == (set(small_scenes().test.names) if name.startswith("full") else set())


def test_examples_are_recorded_with_their_true_labels(undisturbed_scenes: Path) -> None:
    test = small_scenes().test
    with reading(undisturbed_scenes) as connection:
        examples = read_examples(connection)
    assert tuple(example.name for example in examples) == test.names
    assert [example.truth for example in examples] == [label_png(labels) for labels in test.labels]


def test_runs_without_a_rate_that_trains_count_as_diverged(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    hopeless = dataclasses.replace(SMALL, updates=("sgd",), rates=(1e30, 1e32))
    with pytest.raises(KeyboardInterrupt):
        carry_out(path, protocol=hopeless, patience=2)
    watcher = carry_out(path, protocol=hopeless)
    assert watcher.seen == watcher.expected == (2 + 2 + 1, 2 * 2 * 4 + 3 * 3 * 12)
    search, given_up = runs_of(path, "search"), runs_of(path, "full")
    assert [(run.reason, run.diverged) for run in search] == [("the loss is not finite", True)] * 2
    assert [(run.reason, run.diverged) for run in given_up] == [("every candidate rate diverged", True)] * 2
    assert names(path, "full") == ["full/sgd/none/0", "full/sgd/none/1"]


def test_without_rates_every_update_takes_the_one_it_is_registered_with(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    watcher = carry_out(path, protocol=dataclasses.replace(SMALL, rates=(), repeats=1))
    assert watcher.seen == watcher.expected == (2, 2 * 3 * 12)
    assert runs_of(path, "search") == []
    for run in runs_of(path, "full"):
        assert run.curve[0].rate == SCENE_OPTIMIZERS[run.labels["update"]].rate


@pytest.mark.parametrize(
    ("crop", "images"),
    [((8, 16), 4), (None, 12), ((1, 1), 1)],
    ids=["a third", "whole images", "at least one"],
)
def test_work_is_counted_in_whole_images_and_crops_as_their_share(
    tmp_path: Path, crop: tuple[int, int] | None, images: int
) -> None:
    protocol = dataclasses.replace(SMALL, search_crop=crop, updates=("un",), rates=(0.1,), repeats=1)
    watcher = carry_out(tmp_path / "records.sqlite", protocol=protocol)
    assert watcher.seen == watcher.expected == (2, 2 * images + 3 * 12)


@pytest.mark.parametrize(
    ("count", "places"), [(4, [0, 1, 2, 3]), (3, [0, 1, 2]), (1, [0]), (9, [1, 3, 5, 7])]
)
def test_examples_are_spread_over_the_test_images(count: int, places: list[int]) -> None:
    test = small_scenes().test._replace(names=tuple(map(str, range(count))))
    assert example_names(test) == [str(place) for place in places]


def test_the_large_network_is_trained_too(tmp_path: Path) -> None:
    large = dataclasses.replace(
        SMALL, network="segnet", features=2, updates=("un",), rates=(), repeats=1, epochs=1
    )
    carry_out(tmp_path / "records.sqlite", protocol=large)
    (run,) = runs_of(tmp_path / "records.sqlite", "full")
    assert (run.reason, run.diverged) == ("all epochs done", False)
