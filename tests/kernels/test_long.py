"""Long rows on the unit sphere, one by one from the end or several at a time: the same steps."""

import numpy as np
import pytest
import torch

from symoptim import UnitNormSGD
from symoptim.kernels.numbers import numbers_of
from tests.support.sampling import one_in

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
long = pytest.importorskip("symoptim.kernels.numba.long")


def _callable(way, *, together: bool = True):
    """Parts of kernels cannot be called from Python."""
    if together:
        return numba.njit(lambda w, g, m, length, at, number: way(w, g, m, length, at, number))
    return numba.njit(lambda w, g, m, length, at, number: way(w, g, m, length, number))


WAYS = {
    "without momentum": (
        {"momentum": 0.0, "nesterov": False},
        _callable(long.near_rows_of_two, together=False),
        _callable(long.far_rows_of_two),
    ),
    "momentum taken up": (
        {"momentum": 0.9, "nesterov": False},
        _callable(long.near_rows_taken_up, together=False),
        _callable(long.far_rows_taken_up),
    ),
    "momentum": (
        {"momentum": 0.9, "nesterov": False},
        _callable(long.near_rows_taken_up, together=False),
        _callable(long.far_rows_of_three),
    ),
    "Nesterov": (
        {"momentum": 0.9, "nesterov": True},
        _callable(long.near_rows_of_three, together=False),
        _callable(long.far_rows_of_three),
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("group", "near", "far"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("rate", [0.01, 1e3], ids=["short steps", "long steps"])
@pytest.mark.parametrize(("rows", "together"), one_in(2, [(4, 2), (1, 4), (7, 3), (3, 1), (14, 2)]))
def test_rows_may_be_taken_in_any_number(
    rows: int, together: int, rate: float, group: dict[str, float], near, far, dtype: type
) -> None:
    length, random = 5000, np.random.default_rng(0)
    number = np.array(numbers_of({"lr": rate, "weight_decay": 0.0, "maximize": True, **group}))
    gradient, weights, buffer = random.normal(size=(3, rows * length)).astype(dtype)
    both = [(weights / dtype(length**0.5), buffer if group["momentum"] else np.zeros(0, dtype))]
    both.append((both[0][0].copy(), both[0][1].copy()))
    for _ in range(3):
        near(both[0][0], gradient, both[0][1], length, together, number)
        far(both[1][0], gradient, both[1][1], length, together, number)
    allowed = 100 * np.finfo(dtype).eps
    for one, other in zip(*both, strict=True):
        assert np.allclose(one, other, rtol=allowed, atol=allowed)
    assert np.allclose(np.linalg.norm(both[0][0].reshape(rows, length), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("length", [512, 513, 2049, 3500, 4608, 20000, 70000])
def test_rows_of_every_length_take_the_reference_step(
    length: int, momentum: float, nesterov: bool, maximize: bool
) -> None:
    options = {"lr": 0.1, "momentum": momentum, "nesterov": nesterov, "maximize": maximize}
    found: list[torch.Tensor] = []
    for fused in (True, False):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(9, length, dtype=torch.float64))
        optimizer = UnitNormSGD([weight], fused=fused, normalize=True, **options)
        for _ in range(3):
            weight.grad = torch.randn_like(weight)
            optimizer.step()
        kept = [optimizer.state[weight]["momentum_buffer"]] if momentum else []
        found.append(torch.stack([weight.detach(), *kept]))
    assert torch.allclose(*found, rtol=1e-12, atol=1e-13)
