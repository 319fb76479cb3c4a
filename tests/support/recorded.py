"""Records made up for tests of the report."""

from collections.abc import Iterable, Sequence
from typing import Any

from symoptim.paper.records.runs import Epoch, RecordedExperiment, RecordedRun
from symoptim.paper.table2.summary import Summary


def an_experiment(
    *, data: str = "mnist", titles: dict[str, str] | None = None, **protocol: Any
) -> RecordedExperiment:
    """The paper's experiment, unless it is told otherwise."""
    asked = {
        "repeats": 10,
        "seed": 0,
        "depths": [2, 4],
        "schedules": ["exponential", "bold"],
        "architectures": ["arch1", "arch2"],
        "updates": ["b-sgd", "sm", "un"],
        "rates": [0.01, 0.001],
        "selection_epochs": 50,
        "selection_train": 1000,
        "selection_validation": 500,
        "train": 50000,
        "validation": 10000,
        "batch": 100,
        "exponential": {"decay": 0.95},
        "bold": {"grow": 1.1, "shrink": 0.5},
        "stopping": {"minimum": 25, "maximum": 60, "train_error": 1e-5, "lookback": 5, "change": 1e-5},
        "classifier": "rows",
        **protocol,
    }
    names = {"b-sgd": "B-SGD", "sm": "SM", "un": "UN"}
    configuration = {
        "data": data,
        "digest": "abc",
        "profile": "paper",
        "titles": titles or names,
        "protocol": asked,
    }
    session = {
        "begun": "2026-01-01T00:00:00+00:00",
        "seconds": 61.4,
        "command": "symoptim reproduce table2",
        "commit": None,
        "code": "abc",
        "python": "3.11",
        "platform": "Linux",
        "cores": 2,
    }
    return RecordedExperiment("mnist", configuration, "cpu", "2.13.0", None, (session,))


def a_recorded_run(
    *,
    repeat: int,
    errors: Sequence[float],
    reason: str | None = "all epochs done",
    diverged: bool = False,
    maximum: int = 60,
    **labels: Any,
) -> RecordedRun:
    """A full run with these test errors, of 2-layer Arch1, SM and the bold driver unless told otherwise."""
    where = {"phase": "full", "architecture": "arch1", "depth": 2, "update": "sm", "schedule": "bold"}
    curve = tuple(Epoch(k, 0.1, 1.0, 0.1, 0.1, error) for k, error in enumerate(errors, start=1))
    configuration = {"rate": 0.01, "stopping": {"maximum": maximum}}
    return RecordedRun(
        f"run {repeat}", {**where, "repeat": repeat, **labels}, configuration, reason, diverged, curve
    )


def a_summary(runs: Iterable[RecordedRun] = (), **options: Any) -> Summary:
    """These runs, of the paper's experiment unless told otherwise."""
    return Summary(an_experiment(**options), list(runs))


def every_run(repeats: int = 2, **options: Any) -> Summary:
    """Every run of the paper's table, each cell with errors of its own."""
    experiment = an_experiment(repeats=repeats)
    asked = experiment.configuration["protocol"]
    runs = [
        a_recorded_run(
            repeat=repeat,
            errors=[0.1, 0.015 + 0.001 * depth + 0.0001 * repeat + 0.002 * (architecture == "arch1")],
            depth=depth,
            schedule=schedule,
            architecture=architecture,
            update=update,
        )
        for depth in asked["depths"]
        for schedule in asked["schedules"]
        for architecture in asked["architectures"]
        for update in asked["updates"]
        for repeat in range(repeats)
    ]
    return a_summary(runs, repeats=repeats, **options)
