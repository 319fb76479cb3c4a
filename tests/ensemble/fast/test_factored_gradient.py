"""Steps that never form a gradient, against the pure ones that take it."""

import pytest
import torch
from torch import Tensor

from symoptim.ensemble.fast.factored_gradient import FACTORED_STEPS, FactoredGradient
from symoptim.geometry.filters import ROWS, Axes
from symoptim.geometry.unit_norm import normalize
from symoptim.updates.catalog import UNIT_NORM, Update
from symoptim.updates.step import StepOptions, step

RATES = torch.tensor([1e-3, 0.1, 3.0, 1e3], dtype=torch.float64).reshape(-1, 1, 1)


def weights_and_gradient(shared: int) -> tuple[Tensor, FactoredGradient]:
    """Four runs of unit filters ``(4, 6, 5)``, on as many batches as are not shared."""
    w = normalize(torch.randn(4, 6, 5, dtype=torch.float64))
    inputs = torch.randn(4 // shared, 7, 5, dtype=torch.float64)
    responses = w @ inputs.repeat_interleave(shared, dim=0).mT
    return w, FactoredGradient(torch.randn(4, 6, 7, dtype=torch.float64), inputs, responses)


@pytest.mark.parametrize(("update", "over"), FACTORED_STEPS)
def test_a_step_is_that_of_the_dense_gradient(update: Update, over: Axes) -> None:
    for shared in (1, 2) if over == ROWS else (1,):
        w, gradient = weights_and_gradient(shared)
        expected = step(update, w, gradient.dense(), StepOptions(lr=RATES), over=over).weights
        FACTORED_STEPS[update, over](w, gradient, RATES)
        torch.testing.assert_close(w, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("excess", [0.0, 1e-300, -1e-12, -5.0])
def test_unit_rows_may_be_reversed(excess: float) -> None:
    """The gradient along a row is so large that nothing is left of the row, or less."""
    w = normalize(torch.randn(1, 3, 5, dtype=torch.float64))
    across = torch.randn(1, 3, 5, dtype=torch.float64)
    across -= (across * w).sum(dim=2, keepdim=True) * w
    inputs = torch.eye(5, dtype=torch.float64).unsqueeze(0)
    gradient = FactoredGradient(across + (excess - 1) * w, inputs, w @ inputs)
    expected = step(UNIT_NORM, w, gradient.dense(), StepOptions(lr=1.0)).weights
    FACTORED_STEPS[UNIT_NORM, ROWS](w, gradient, torch.ones(1, 1, 1, dtype=torch.float64))
    torch.testing.assert_close(w, expected, rtol=1e-12, atol=1e-12)
