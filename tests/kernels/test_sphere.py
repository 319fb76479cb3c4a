"""Long rows on the unit sphere, one by one from the end or several at a time: the same steps."""

import numpy as np
import pytest
import torch

from symoptim import UnitNormSGD
from symoptim.kernels.numbers import numbers_of

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
sphere = pytest.importorskip("symoptim.kernels.cpu.sphere")

# Parts of kernels cannot be called from Python.
near = numba.njit(lambda w, g, m, length, number: sphere._near_rows(w, g, m, length, number))
far = numba.njit(lambda w, g, m, length, at, number: sphere._far_rows(w, g, m, length, at, number))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("rate", [0.01, 1e3], ids=["short steps", "long steps"])
@pytest.mark.parametrize(("rows", "together"), [(1, 4), (4, 2), (7, 3), (3, 1)])
def test_rows_may_be_taken_in_any_number(
    rows: int, together: int, rate: float, momentum: float, nesterov: bool, dtype: type
) -> None:
    length, random = 5000, np.random.default_rng(0)
    group = {"lr": rate, "momentum": momentum, "nesterov": nesterov, "weight_decay": 0.0, "maximize": True}
    number = np.array(numbers_of(group))
    gradient, weights, buffer = random.normal(size=(3, rows * length)).astype(dtype)
    both = [(weights / dtype(length**0.5), buffer if momentum else np.zeros(0, dtype)) for _ in range(2)]
    both[1] = both[1][0].copy(), both[1][1].copy()
    for _ in range(3):
        near(both[0][0], gradient, both[0][1], length, number)
        far(both[1][0], gradient, both[1][1], length, together, number)
    allowed = 100 * np.finfo(dtype).eps
    for one, other in zip(*both, strict=True):
        assert np.allclose(one, other, rtol=allowed, atol=allowed)
    assert np.allclose(np.linalg.norm(both[0][0].reshape(rows, length), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("length", [2048, 2049, 3500, 4608, 20000, 70000])
def test_rows_of_every_length_take_the_reference_step(
    length: int, momentum: float, nesterov: bool, maximize: bool
) -> None:
    options = {"lr": 0.1, "momentum": momentum, "nesterov": nesterov, "maximize": maximize}
    found: list[torch.Tensor] = []
    for fused in (True, False):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(9, length, dtype=torch.float64))
        optimizer = UnitNormSGD([weight], fused=fused, **options)
        for _ in range(3):
            weight.grad = torch.randn_like(weight)
            optimizer.step()
        kept = [optimizer.state[weight]["momentum_buffer"]] if momentum else []
        found.append(torch.stack([weight.detach(), *kept]))
    assert torch.allclose(*found, rtol=1e-12, atol=1e-13)
