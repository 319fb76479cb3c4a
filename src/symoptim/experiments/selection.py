"""The paper's choice of a learning rate: short runs at every candidate, the lowest validation error wins."""

from collections.abc import Iterable
from typing import NamedTuple

NO_RATE = "every candidate rate diverged"
"""Why a run for which nothing can be chosen is not trained."""


class Candidate(NamedTuple):
    """A rate, how a run at it ended, and whether that run diverged."""

    rate: float
    validation_error: float
    diverged: bool


def choose(candidates: Iterable[Candidate]) -> float | None:
    """Rate with the lowest validation error, the larger one on a tie; never one that diverged.

    Args:
        candidates: the short runs.

    Returns:
        The rate; None if all diverged.

    >>> choose([Candidate(1e-2, 0.1, True), Candidate(1e-3, 0.2, False), Candidate(1e-4, 0.2, False)])
    0.001
    """
    sound = [candidate for candidate in candidates if not candidate.diverged]
    if not sound:
        return None
    return min(sound, key=lambda candidate: (candidate.validation_error, -candidate.rate)).rate
