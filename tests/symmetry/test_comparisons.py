"""Comparisons of sizes, and sizes at which their outcome changes."""

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.utils._sympy.functions import CeilToInt, FloorDiv, IntTrueDiv, Mod, PythonMod, ToFloat

from symoptim.symmetry.comparisons import MOST_THRESHOLDS, Comparisons, symbolic_pass
from symoptim.symmetry.variations import Call

N = sympy.Symbol("n", integer=True, positive=True)
UNKNOWN = sympy.Function("unknown_to_python")

THRESHOLDS = {
    "whole blocks": (FloorDiv(N, 64) <= 5, 5, [384]),
    "blocks": (CeilToInt(IntTrueDiv(N, 64)) <= 5, 5, [321]),
    "from above": (FloorDiv(N, 64) > 5, 5000, [383]),
    "a float": (ToFloat(N) <= 400.5, 5, [401]),
    "times a float": (0.5 * ToFloat(N) <= 150.0, 5, [301]),
    "a remainder": (sympy.Ne(Mod(N, 1024), 1023), 5, [1023]),
    "a remainder of what is missing": (PythonMod(-N, 8) < 4, 5, [4, 9]),
    "both sides": (sympy.Abs(N - 100) <= 40, 100, [59, 141]),
    "a square": (N**2 <= 10**6, 5, [1001]),
    "far away": (N <= 10**9, 5, [10**9 + 1]),
    "a square far away": (N**2 <= 49 * 10**12, 5, [7 * 10**6 + 1]),
    "no choice": (sympy.Ne(N + 1, 0), 5, []),
    "no function of Python": (UNKNOWN(N) <= 3, 5, []),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_the_closest_size_on_each_side_is_found(name: str) -> None:
    comparison, size, expected = THRESHOLDS[name]
    assert Comparisons([comparison], N, size).threshold_sizes() == expected


def test_of_many_comparisons_as_many_as_can_be_turn_at_the_sizes() -> None:
    steps = [10 * step >= N for step in range(1, 30)]
    found = Comparisons(steps, N, 5).threshold_sizes()
    assert len(found) == MOST_THRESHOLDS
    assert max(found) == 291


class Compares(nn.Linear):
    """Compares a size, and perhaps asks for a value."""

    asks = False

    def forward(self, input: Tensor) -> Tensor:
        hidden = super().forward(input)
        if input.shape[0] > 7 or (self.asks and bool(hidden.sum() > 0)):
            return hidden[:7]
        return hidden


def test_a_pass_without_values_sees_the_same_comparisons_and_fails_where_values_are_asked_for() -> None:
    model, call = Compares(3, 2), Call((torch.rand(5, 3),), {})
    passes = [symbolic_pass(model, call, values=values) for values in (True, False)]
    one, other = (
        [(str(guard.expression), guard.by_python) for guard in each.guards.placed] for each in passes
    )
    assert one == other
    assert one
    model.asks = True
    assert symbolic_pass(model, call, values=True).failure is None
    assert symbolic_pass(model, call, values=False).failure is not None
