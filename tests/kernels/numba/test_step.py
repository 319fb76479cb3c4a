"""Parts of the kernel of steps: rows of every length move by their formulas."""

import numpy as np
import pytest
import torch

from symoptim import UnitNormSGD
from symoptim.kernels.descriptor import PLAIN, hyperparameter_row

numba = pytest.importorskip("numba", reason="fused steps on the CPU need numba")
step = pytest.importorskip("symoptim.kernels.numba.step")

# Parts of kernels cannot be called from Python.
step_scaled_rows = numba.njit(lambda w, g, m, length, number: step.step_scaled_rows(w, g, m, length, number))
step_row_of_full_metric = numba.njit(
    lambda w, g, m, row, columns, twice, number: step.step_row_of_full_metric(
        w, g, m, row, columns, twice, step.coefficients(PLAIN, 1.0, 0.0, 0.0, 0.0, number, w)
    )
)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "length"), [(1, 600), (3, 2500), (5, 256), (2, 1), (7, 1030), (700, 3000)])
def test_rows_are_stepped_in_the_scaled_metric(
    rows: int, length: int, momentum: float, nesterov: bool, dtype: type
) -> None:
    random = np.random.default_rng(0)
    decay, rate = 0.1, 0.01
    group = {"lr": rate, "momentum": momentum, "nesterov": nesterov, "weight_decay": decay, "maximize": True}
    weights, gradient, buffer = random.normal(size=(3, rows, length))
    w, g, m = (one.astype(dtype).ravel() for one in (weights, gradient, buffer))
    step_scaled_rows(w, g, m if momentum else m[:0], length, np.array(hyperparameter_row(group)))
    direction = -(weights**2).sum(1, keepdims=True) * gradient
    kept = momentum * buffer + direction
    move = direction + momentum * kept if nesterov else kept
    expected = (1 - rate * decay) * weights - rate * (move if momentum else direction)
    for found, wanted in ((w, expected), (m, kept if momentum else buffer)):
        allowed = 30 * np.finfo(dtype).eps * np.abs(wanted).max()
        assert np.abs(found - wanted.ravel()).max() < allowed


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("length", [512, 513, 2049, 3500, 4608, 20000, 70000])
def test_rows_of_every_length_take_the_reference_step_on_the_sphere(
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


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_every_entry_moves_by_its_gradient_times_both_factors(momentum: float, maximize: bool) -> None:
    group = {"lr": 0.1, "momentum": momentum, "nesterov": False, "weight_decay": 0.01, "maximize": maximize}
    number, random = np.array(hyperparameter_row(group)), np.random.default_rng(0)
    for inner, twice in [(0, False), (5, False), (511, True), (512, False), (513, True), (1500, True)]:
        w, g, m = random.normal(size=(3, inner))
        row, columns = random.uniform(0.5, 2), random.uniform(0.5, 2, inner)
        slope = (-1 if maximize else 1) * g * (row * columns) ** (2 if twice else 1)
        buffer = momentum * m + slope
        wanted = w * (1 - 0.1 * 0.01) - 0.1 * buffer
        step_row_of_full_metric(w, g, m if momentum else m[:0], row, columns, twice, number)
        assert np.allclose(w, wanted, rtol=1e-13, atol=1e-13)
        assert not momentum or np.allclose(m, buffer, rtol=1e-13, atol=1e-13)
