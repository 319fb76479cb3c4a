"""Rows in the scaled metric, one by one, in turn with the next, or in groups: the same steps."""

import numpy as np
import pytest

from symoptim.kernels.numbers import numbers_of

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
scaled = pytest.importorskip("symoptim.kernels.numba.scaled")

# Parts of kernels cannot be called from Python.
one_by_one = numba.njit(lambda w, g, m, length, number: scaled._one_by_one(w, g, m, length, number))
in_turn = numba.njit(lambda w, g, m, length, number: scaled._in_turn(w, g, m, length, number))
in_groups = numba.njit(lambda w, g, m, length, number: scaled._in_groups(w, g, m, length, number))
WAYS = {"one by one": one_by_one, "in turn": in_turn, "in groups": in_groups}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "length"), [(1, 600), (3, 2500), (5, 256), (2, 1), (7, 1030), (700, 3000)])
def test_rows_are_stepped_by_the_formula(
    rows: int, length: int, momentum: float, nesterov: bool, dtype: type, way
) -> None:
    random = np.random.default_rng(0)
    decay, rate = 0.1, 0.01
    group = {"lr": rate, "momentum": momentum, "nesterov": nesterov, "weight_decay": decay, "maximize": True}
    weights, gradient, buffer = random.normal(size=(3, rows, length))
    w, g, m = (one.astype(dtype).ravel() for one in (weights, gradient, buffer))
    way(w, g, m if momentum else m[:0], length, np.array(numbers_of(group)))
    direction = -(weights**2).sum(1, keepdims=True) * gradient
    kept = momentum * buffer + direction
    move = direction + momentum * kept if nesterov else kept
    expected = (1 - rate * decay) * weights - rate * (move if momentum else direction)
    for found, wanted in ((w, expected), (m, kept if momentum else buffer)):
        allowed = 30 * np.finfo(dtype).eps * np.abs(wanted).max()
        assert np.abs(found - wanted.ravel()).max() < allowed
