"""Progress on the terminal: how much is done, the current error, the time left."""

import math
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from symoptim.paper.runner import Progress as Done


def median_error(done: "Done") -> str:
    """Median error of the runs: on the test set, or on the validation set where only that is looked at."""
    errors = [e.validation_error if math.isnan(e.test_error) else e.test_error for e in done.epochs.values()]
    return f", median error {statistics.median(errors):.4f}" if errors else ""


def loss_and_score(done: "Done") -> str:
    """Training loss of a run on scenes, and its score on the validation set where that was measured."""
    text = ""
    for epoch in done.epochs.values():
        text = f", loss {epoch.loss:.3f}"
        text += "" if math.isnan(epoch.validation_error) else f", mean IoU {1 - epoch.validation_error:.3f}"
    return text


class ProgressBar:
    """Shows an experiment's progress; use it in a ``with`` statement, and call it as often as it changes."""

    def __init__(self, console: Console, describe: Callable[["Done"], str] = median_error) -> None:
        """Show progress on that console, every epoch described so."""
        self.describe = describe
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[runs]} runs{task.fields[result]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self.task: TaskID | None = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, done: "Done") -> None:
        """Show how far it is now."""
        if self.task is None:  # not before: downloads have a bar of their own
            self.progress.start()
            self.task = self.progress.add_task("preparing", runs="", result="")
        number = max((epoch.number for epoch in done.epochs.values()), default=0)
        self.progress.update(
            self.task,
            description=f"{done.title} epoch {number}" if number else done.title,
            total=done.work - done.skipped,  # skipped work would count as speed, and belie the time left
            completed=done.work_done,
            runs=f"{done.runs_done}/{done.runs}",
            result=self.describe(done),
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
