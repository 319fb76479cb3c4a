"""Rows on the unit sphere two by two or by halves: steps are those of one by one, on whatever machine."""

import numpy as np
import pytest

from symoptim.kernels.numbers import numbers_of

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
pairs = pytest.importorskip("symoptim.kernels.cpu.pairs")
sphere = pytest.importorskip("symoptim.kernels.cpu.sphere")

# Parts of kernels cannot be called from Python.
in_pairs = numba.njit(lambda w, g, m, length, number: pairs._in_pairs(w, g, m, length, number))
one_by_one = numba.njit(lambda w, g, m, length, number: sphere._near_rows(w, g, m, length, number))
by_halves = numba.njit(lambda w, g, m, length, number: pairs._by_halves(w, g, m, length, number))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [0.01, 1e3])
@pytest.mark.parametrize(("way", "rows"), [(in_pairs, 4), (in_pairs, 5), (in_pairs, 1), (by_halves, 3)])
def test_rows_taken_together_are_stepped_as_one_by_one(way, rows: int, rate: float, dtype: type) -> None:
    length, random = 5000, np.random.default_rng(0)
    group = {"lr": rate, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0, "maximize": False}
    number = np.array(numbers_of(group))
    gradient, weights, buffer = random.normal(size=(3, rows * length)).astype(dtype)
    arrays = [weights / dtype(length**0.5), buffer]
    expected = [array.copy() for array in arrays]
    for _ in range(3):
        way(arrays[0], gradient, arrays[1], length, number)
        one_by_one(expected[0], gradient, expected[1], length, number)
    allowed = 100 * np.finfo(dtype).eps
    for found, wanted in zip(arrays, expected, strict=True):
        assert np.allclose(found, wanted, rtol=allowed, atol=allowed)
