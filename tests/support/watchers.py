"""Somebody who watches an experiment in tests."""

from symoptim.paper.runner import Progress


class Counter:
    """Keeps how far an experiment was last, and can interrupt it."""

    def __init__(self, patience: int = 10**9) -> None:
        self.patience = patience
        self.last = Progress()

    def __call__(self, progress: Progress) -> None:
        epoch_has_ended = progress.work_done > self.last.work_done
        self.last = progress
        self.patience -= epoch_has_ended
        if epoch_has_ended and self.patience == 0:
            raise KeyboardInterrupt

    @property
    def expected(self) -> tuple[int, int]:
        return self.last.runs, self.last.work

    @property
    def seen(self) -> tuple[int, int]:
        return self.last.runs_done, self.last.work_done + self.last.skipped
