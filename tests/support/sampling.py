"""What ``make test`` leaves to ``make test-all`` where cases are many and alike."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """All cases, of which ``make test`` runs the first and then one in so many."""
    return [
        case if place % every == 0 else pytest.param(*_values(case), marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
