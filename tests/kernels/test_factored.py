"""Steps in the full metric: one row after the other or of two places at once, the same numbers."""

import numpy as np
import pytest

from symoptim.kernels.numbers import numbers_of

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
factored = pytest.importorskip("symoptim.kernels.numba.factored")


@pytest.fixture(params=[True, False], ids=["two places", "one place"])
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(factored, "ZEN", request.param)
    return numba.njit(factored.factored_rows.py_func)  # compiled anew: constants are part of the code


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_entry_moves_by_its_gradient_times_both_factors(step, momentum: float) -> None:
    group = {"lr": 0.1, "momentum": momentum, "nesterov": False, "weight_decay": 0.01, "maximize": False}
    number, random = np.array(numbers_of(group)), np.random.default_rng(0)
    for rows, inner, twice in [
        (1, 5, False),
        (3, 0, False),
        (2, 511, True),
        (5, 512, False),
        (7, 513, True),
        (4, 1500, True),
    ]:
        w, g, m = random.normal(size=(3, rows, inner))
        by_row, by_column = random.uniform(0.5, 2, rows), random.uniform(0.5, 2, inner)
        slope = g * (by_row[:, None] * by_column) ** (2 if twice else 1)
        buffer = momentum * m + slope
        wanted = w * (1 - 0.1 * 0.01) - 0.1 * buffer
        state = m.ravel() if momentum else np.zeros(0)
        step(w.ravel(), g.ravel(), state, inner, by_row, by_column, twice, number)
        assert np.allclose(w, wanted, rtol=1e-13, atol=1e-13)
        assert not momentum or np.allclose(m, buffer, rtol=1e-13, atol=1e-13)
