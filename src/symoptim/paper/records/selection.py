"""The choice of a learning rate: runs at every candidate, the lowest validation error at the end wins."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from symoptim.paper.records.runs import RecordedRun

NO_RATE = "every candidate rate diverged"
"""Why a run for which nothing can be chosen is not trained."""


class Candidate(NamedTuple):
    """A rate, how a run at it ended, and whether that run diverged."""

    rate: float
    validation_error: float
    diverged: bool


def candidate(run: RecordedRun) -> Candidate:
    """A recorded run that has ended, as a candidate; one that was never trained has diverged."""
    error = run.curve[-1].validation_error if run.curve else math.nan
    return Candidate(run.labels["rate"], error, run.diverged)


def rank(candidates: Iterable[Candidate]) -> list[float]:
    """Rates from the lowest validation error to the highest, the larger first on a tie.

    >>> rank([Candidate(1e-2, 0.1, True), Candidate(1e-3, 0.2, False), Candidate(1e-4, 0.1, False)])
    [0.0001, 0.001]
    """
    sound = [candidate for candidate in candidates if not candidate.diverged]
    return [c.rate for c in sorted(sound, key=lambda c: (c.validation_error, -c.rate))]


def choose(candidates: Iterable[Candidate]) -> float | None:
    """The best rate; None if all diverged.

    >>> choose([Candidate(1e-2, 0.1, True), Candidate(1e-3, 0.2, False), Candidate(1e-4, 0.2, False)])
    0.001
    """
    return next(iter(rank(candidates)), None)
