"""How kernels for CPUs are compiled."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.two_processes import outputs

numba = pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


def _doubled(x: np.ndarray) -> None:
    for i in range(x.size):
        x[i] *= 2


def test_loops_are_compiled_to_narrow_vectors_where_that_was_asked_for() -> None:
    from symoptim.kernels.numba.jit import narrow

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


# Shapes whose steps did differ when the kernel called its parts: short rows, and filters that lie apart.
STEPS = """
import hashlib
import torch
from symoptim import ScaledSGD, UnitNormSGD
torch.manual_seed(0)
for kind in (ScaledSGD, UnitNormSGD):
    shapes = (33, 100), (5, 20000), (300, 40)
    short, long, apart = (torch.nn.Parameter(torch.randn(shape).double()) for shape in shapes)
    groups = [{"params": [short, long], "normalize": True}, {"params": [apart], "axis": 1, "normalize": True}]
    optimizer = kind(groups, lr=0.01, momentum=0.9, nesterov=True, fused=True)
    for _ in range(4):
        for weight in (short, long, apart):
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    for weight in (short, long, apart):
        print(hashlib.sha256(weight.detach().numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_first_process_and_the_second_step_to_the_same_bits(tmp_path: Path) -> None:
    first, second = outputs(STEPS, tmp_path)
    assert len(first.splitlines()) == 6
    assert first == second
