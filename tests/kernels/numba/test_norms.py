"""Squared norms of rows and columns: of any size, and whatever rows are beside them."""

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
norms = pytest.importorskip("symoptim.kernels.numba.norms")

# Parts of kernels cannot be called from Python.
squares_of_rows = numba.njit(lambda w, inner, columns, out: norms.squares_of_rows(w, inner, columns, out))
squares_of_columns = numba.njit(
    lambda w, rows, inner, first, last, out: norms.squares_of_columns(w, rows, inner, first, last, out)
)
SIZES = [(1, 1), (3, 127), (4, 128), (6, 129), (13, 1000), (7, 5000)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25], ids=["usual", "small", "large"])
def test_rows_of_any_number_and_length_are_summed(scale: float, dtype: type) -> None:
    random = np.random.default_rng(0)
    for rows, inner in [*SIZES, (2, 0)]:
        w = (scale * random.normal(size=(rows, inner))).astype(dtype)
        for columns in (random.uniform(0.5, 2, inner).astype(dtype), np.ones(0, dtype)):
            found, by = np.zeros(rows), columns.astype(float) if columns.size else 1.0
            squares_of_rows(w.ravel(), inner, columns, found)
            expected = ((w.astype(float) * by) ** 2).sum(1)
            assert np.allclose(found, expected, rtol=100 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25], ids=["usual", "small", "large"])
def test_columns_of_any_number_and_length_are_summed(scale: float, dtype: type) -> None:
    random = np.random.default_rng(0)
    for inner, rows in SIZES:
        w = (scale * random.normal(size=(rows, inner))).astype(dtype)
        for factors in (random.uniform(0.5, 2, rows).astype(dtype), np.ones(0, dtype)):
            by = factors[:, None].astype(float) if factors.size else 1.0
            expected = ((w.astype(float) * by) ** 2).sum(0)
            first, found = inner // 2, np.zeros(inner)
            squares_of_columns(w.ravel(), factors, inner, 0, first, found[:first])
            squares_of_columns(w.ravel(), factors, inner, first, inner, found[first:])
            assert np.allclose(found, expected, rtol=100 * np.finfo(dtype).eps, atol=0)


def test_sums_of_rows_do_not_depend_on_the_rows_beside_them() -> None:
    w, columns = np.random.default_rng(0).normal(size=(14, 700)).astype(np.float32), np.ones(0, np.float32)
    together, apart = np.zeros(14), np.zeros(14)
    squares_of_rows(w.ravel(), 700, columns, together)
    for first, last in ((0, 4), (4, 12), (12, 14)):
        squares_of_rows(w[first:last].ravel(), 700, columns, apart[first:last])
    assert np.array_equal(together, apart)
