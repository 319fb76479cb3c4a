"""Somebody who watches an experiment in tests."""

from collections.abc import Mapping

from symoptim.ensemble.ensemble import Result


class Counter:
    """A watcher that adds up what it is told, and can interrupt."""

    def __init__(self, patience: int = 10**9) -> None:
        self.patience = patience
        self.expected = self.seen = (0, 0)

    def expect(self, *, runs: int, work: int) -> None:
        self.expected = (runs, work)

    def skip(self, *, runs: int, work: int) -> None:
        self.seen = (self.seen[0] + runs, self.seen[1] + work)

    def epoch(self, title: str, results: Mapping[str, Result], *, work: int) -> None:
        ended = sum(result.outcome is not None for result in results.values())
        self.skip(runs=ended, work=work)
        self.patience -= 1
        if self.patience == 0:
            raise KeyboardInterrupt
