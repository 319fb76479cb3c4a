"""Squared norms of rows and columns: whatever the processor, the same to rounding."""

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
squares = pytest.importorskip("symoptim.kernels.numba.squares")


@pytest.fixture(params=[True, False], ids=["in turn", "together"])
def of_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(squares, "ZEN", request.param)
    return numba.njit(squares._of_rows.py_func)  # compiled anew: constants are part of the code


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25], ids=["usual", "small", "large"])
def test_rows_of_any_number_and_length_are_summed(of_rows, scale: float, dtype: type) -> None:
    random = np.random.default_rng(0)
    for rows, inner in [(1, 1), (3, 127), (4, 128), (6, 129), (13, 1000), (7, 5000), (2, 0)]:
        w = (scale * random.normal(size=(rows, inner))).astype(dtype)
        for columns in (random.uniform(0.5, 2, inner).astype(dtype), np.ones(0, dtype)):
            found, by = np.zeros(rows), columns.astype(float) if columns.size else 1.0
            of_rows(w.ravel(), inner, columns, found)
            expected = ((w.astype(float) * by) ** 2).sum(1)
            assert np.allclose(found, expected, rtol=100 * np.finfo(dtype).eps, atol=0)


def test_sums_of_rows_do_not_depend_on_the_rows_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squares, "ZEN", True)
    of_rows = numba.njit(squares._of_rows.py_func)
    w, columns = np.random.default_rng(0).normal(size=(14, 700)).astype(np.float32), np.ones(0, np.float32)
    together, apart = np.zeros(14), np.zeros(14)
    of_rows(w.ravel(), 700, columns, together)
    for first, last in ((0, 4), (4, 12), (12, 14)):
        of_rows(w[first:last].ravel(), 700, columns, apart[first:last])
    assert np.array_equal(together, apart)
