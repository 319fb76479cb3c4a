"""How kernels for CPUs are compiled."""

import numpy as np
import pytest

numba = pytest.importorskip(
    "numba", reason="the kernels for CPUs are compiled by numba: pip install 'symoptim[fast]'"
)


def _doubled(x: np.ndarray) -> None:
    for i in range(x.size):
        x[i] *= 2


def test_loops_are_compiled_to_narrow_vectors_where_that_was_asked_for() -> None:
    from symoptim.kernels.cpu.compiled import narrow

    @numba.njit
    def narrowly(x: np.ndarray) -> None:
        narrow()
        for i in range(x.size):
            x[i] *= 2

    for function, is_narrow in ((narrowly, True), (numba.njit(_doubled), False)):
        x = np.ones(1000, np.float32)
        function(x)
        assert (x == 2).all()
        (text,) = function.inspect_llvm().values()
        assert ('"prefer-vector-width"="256"' in text) == is_narrow
        (machine,) = function.inspect_asm().values()
        if is_narrow:
            assert "zmm" not in machine
