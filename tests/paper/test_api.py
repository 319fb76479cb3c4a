"""The reproduction from Python; that commands carry it out is tested in tests/cli."""

import csv
import dataclasses
from pathlib import Path

import pytest
import torch

from symoptim.ensemble.images import Split
from symoptim.ensemble.run import EarlyStopping
from symoptim.errors import DataError, OptionError, RecordsError
from symoptim.paper import reproduce
from symoptim.paper.data.digits import load_digits
from symoptim.paper.records.runs import read_runs, reading
from symoptim.paper.runner import Progress, Request
from symoptim.paper.table2 import experiment

TINY = {
    "repeats": 1,
    "updates": ("sm",),
    "architectures": ("arch2",),
    "rates": (1e-2,),
    "selection_epochs": 2,
}
TINY |= {"stopping": EarlyStopping(minimum=5, maximum=6), "schedules": ("bold",)}


def test_an_experiment_is_trained_once_and_reported_as_often_as_one_likes(tmp_path: Path) -> None:
    seen: list[Progress] = []
    told: list[str] = []
    asked = {"data": "digits", "out": tmp_path, "progress": seen.append, "notice": told.append, **TINY}
    first = reproduce("table2", **asked)
    assert first.name == "mnist"
    assert [path.name for path in first.paths][:2] == ["report.html", "table2.md"]
    assert all(path.exists() for path in first.paths)
    (cell,) = first.summary.cells
    assert 0 < cell.mean < 0.5
    last = seen[-1]
    assert last.runs_done == last.runs == 2
    assert last.work_done + last.skipped == last.work
    assert {epoch.number for progress in seen for epoch in progress.epochs.values()} >= {1, 2}
    assert not told
    seen.clear()
    again = reproduce("trajectories", **asked)
    assert again.summary.cells == first.summary.cells
    assert not seen
    assert told == [f"everything is in {tmp_path / 'records.sqlite'} already; nothing is trained"]


def test_invariance_is_recorded_as_every_experiment_is(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_text("of another experiment, and not looked at")
    report = reproduce("invariance", out=tmp_path, epochs=2)
    with reading(tmp_path / "invariance.sqlite") as connection:
        runs = read_runs(connection, "invariance")
    assert len(runs) == 10
    assert [run.run for run in runs[:3]] == [
        "arch1/b-sgd/balanced",
        "arch1/sm/balanced",
        "arch1/b-sgd/rescaled",
    ]
    with (tmp_path / "invariance.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["balanced"]) for row in rows[:2]] == [epoch.loss for epoch in runs[0].curve]
    assert [path.name for path in report.paths] == ["invariance.csv", "invariance.png", "invariance.svg"]
    with pytest.raises(RecordsError, match=r"made with spread 4\.0, you asked for spread 5\.0"):
        reproduce("invariance", out=tmp_path, epochs=2, spread=5.0)


def test_architectures_are_drawn(tmp_path: Path) -> None:
    assert [path.name for path in reproduce("architectures", out=tmp_path).paths] == [
        "architectures.png",
        "architectures.svg",
    ]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("table3", {}, "unknown experiment 'table3'; choose from table2, trajectories, segnet"),
        ("table2", {"repeat": 3}, "unknown option 'repeat'; choose from updates, architectures, depths"),
        ("table2", {"profile": "huge"}, "unknown profile 'huge'; choose from quick, paper"),
        ("table2", {"data": "cifar"}, "unknown data set 'cifar'; choose from auto, mnist"),
        ("segnet", {"data": "mnist"}, "unknown data set 'mnist'; choose from auto, camvid, roads"),
        ("invariance", {"data": "auto"}, "unknown data set 'auto'; choose from mnist, fashion-mnist, digits"),
        ("table2", {"repeats": 0}, "repeats must be at least 1, got 0"),
        ("segnet", {"width": 3}, "unknown option 'width'; choose from updates, network, features"),
        ("invariance", {"spread": 1.0}, "spread must be above 1"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    name, overrides: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=message):
        reproduce(name, out=tmp_path / "out", **{"profile": "quick", **overrides})
    assert not (tmp_path / "out").exists()


def no_mnist(name: str, *_: object, **__: object) -> Split:
    if name == "mnist":
        raise DataError("nobody answers")
    return load_digits()


def a_request(told: list[str], **fields: object) -> Request:
    request = Request("quick", "auto", None, torch.device("cpu"), {}, told.append, None)
    return request._replace(**fields)


def test_digits_stand_in_for_mnist_with_a_notice_where_it_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "load", no_mnist)
    told: list[str] = []
    prepared = experiment.prepare(a_request(told))
    assert (prepared.data_name, len(prepared.data.train_labels)) == ("digits", 1500)
    assert told == ["MNIST could not be had, so these are 8x8 digits. nobody answers"]


@pytest.mark.parametrize(
    ("data", "directory", "profile"),
    [("mnist", None, "quick"), ("auto", None, "paper"), ("auto", Path("here"), "quick")],
)
def test_but_not_where_mnist_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, data: str, directory: Path | None, profile: str
) -> None:
    monkeypatch.setattr(experiment, "load", no_mnist)
    with pytest.raises(DataError, match="nobody answers"):
        experiment.prepare(a_request([], data=data, data_dir=directory, profile=profile))


def test_what_a_run_is_made_with_does_not_depend_on_how_it_is_reported() -> None:
    from symoptim.support.provenance import imported_files

    for name in ("table2", "segnet", "invariance"):
        files = {path.name for path in imported_files(f"symoptim.paper.{name}.experiment")}
        assert {"experiment.py", "runner.py", "sgd.py", "seeds.py"} <= files
        assert not files & {"report.py", "html.py", "figures.py", "judge.py", "tables.py", "reproduce.py"}


def test_protocols_say_what_their_rates_are_for() -> None:
    from symoptim.paper.invariance.experiment import Invariance
    from symoptim.paper.segnet.experiment import SegNetExperiment

    losses = [kind.loss for kind in (experiment.Table2, SegNetExperiment, Invariance)]
    assert losses == ["sum", "mean", "sum"]
    assert all(dataclasses.is_dataclass(kind) for kind in (experiment.Table2, SegNetExperiment, Invariance))
