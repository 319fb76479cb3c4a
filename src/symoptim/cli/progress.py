"""Progress on the terminal: how much is done, the current error, the time left."""

import math
import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from symoptim.ensemble.ensemble import Result


Results = Mapping[str, "Result"]


def median_error(results: Results) -> str:
    """Median error of the runs: on the test set, or on the validation set where only that is looked at."""
    epochs = [result.epoch for result in results.values()]
    errors = [e.validation_error if math.isnan(e.test_error) else e.test_error for e in epochs]
    return f"median error {statistics.median(errors):.4f}"


def loss_and_score(results: Results) -> str:
    """Training loss of a run on scenes, and its score on the validation set where that was measured."""
    (epoch,) = (result.epoch for result in results.values())
    score = "" if math.isnan(epoch.validation_error) else f", mean IoU {1 - epoch.validation_error:.3f}"
    return f"loss {epoch.loss:.3f}{score}"


class ProgressWatcher:
    """Shows an experiment's progress; use it in a ``with`` statement."""

    def __init__(self, console: Console, describe: Callable[[Results], str] = median_error) -> None:
        """Show progress on that console, every epoch described so."""
        self.describe = describe
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[runs_done]}/{task.fields[runs]} runs{task.fields[error]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self.runs_done = self.work = 0

    def __enter__(self) -> "ProgressWatcher":
        self.progress.start()
        self.task = self.progress.add_task("preparing", total=None, runs_done=0, runs=0, error="")
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def expect(self, *, runs: int, work: int) -> None:
        """All there will be to do."""
        self.work = work
        self.progress.update(self.task, total=work, runs=runs)

    def skip(self, *, runs: int, work: int) -> None:
        """Take work off that needs no time; done work would count as speed, and belie the time left."""
        self.runs_done += runs
        self.work -= work
        self.progress.update(self.task, total=self.work, runs_done=self.runs_done)

    def epoch(self, title: str, results: Results, *, work: int) -> None:
        """An epoch of an ensemble has ended."""
        self.runs_done += sum(result.outcome is not None for result in results.values())
        number = next(iter(results.values())).epoch.number
        self.progress.update(
            self.task,
            description=f"{title} epoch {number}",
            advance=work,
            runs_done=self.runs_done,
            error=f", {self.describe(results)}",
        )


class DownloadBar:
    """Shows how far pooch's downloads are."""

    def __init__(self, console: Console) -> None:
        """Show progress on that console."""
        self.console = console
        self.progress: Progress | None = None
        self.total = 0

    def update(self, n: int) -> None:
        """That many bytes more."""
        if self.progress is None:
            columns = (TextColumn("downloading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self.progress = Progress(*columns, console=self.console)
            self.task = self.progress.add_task("downloading", total=self.total)
            self.progress.start()
        self.progress.update(self.task, advance=n)

    def reset(self) -> None:
        """Pooch calls this before its last update, which then stands for the whole file."""
        if self.progress is not None:
            self.progress.reset(self.task, total=self.total)

    def close(self) -> None:
        """The file is there."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
