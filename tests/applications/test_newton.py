"""Newton's method: damped, so that the objective falls at every step, from wherever it begins."""

import itertools

import pytest
import torch
from torch import Tensor

from symoptim.applications import newton
from symoptim.applications.canonicalize import canonical_element, parameters_of, squares_of
from symoptim.applications.exponential_sums import (
    ExponentialSum,
    curvature_diagonal,
    entry_sums,
    merge_single_terms,
    moving_terms,
)
from tests.support.zoo import caught, group_of


@pytest.mark.parametrize(
    "name", ["arch2 training", "vgg training", "resnet training", "residual mlp", "weight norm"]
)
@pytest.mark.parametrize("away", [-4.0, 4.0])
def test_the_objective_falls_at_every_step_from_far_away(
    name: str, away: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model, _, _), spec = caught(name), group_of(name)
    parameters = parameters_of(model, spec)
    expected = canonical_element(parameters, spec)
    terms = moving_terms(spec, parameters)
    squares = {key: squares_of(parameters[key], key) for key in terms}
    blocks = merge_single_terms([entry_sums(squares[key], terms[key]) for key in terms], spec.scales)
    target = ExponentialSum(spec, blocks, expected, newton.POWER).per_scale()  # so that this is the solution
    curvature = curvature_diagonal(
        ExponentialSum(spec, blocks, torch.zeros(len(spec), dtype=torch.float64), 0.0)
    )
    visited: list[Tensor] = []

    class Watched(ExponentialSum):
        def __init__(self, spec: object, blocks: object, element: Tensor, power: float) -> None:
            visited.append(element.clone())
            super().__init__(spec, blocks, element, power)

    def objective(element: Tensor) -> float:
        """F(l) - target . l, entry by entry."""
        scales = spec.log_scales(element, terms)
        total = sum(float((squares[key] * (2 * scales[key]).exp()).sum()) / 2 for key in terms)
        return total - float(spec.by_generator(target) @ element)

    monkeypatch.setattr(newton, "ExponentialSum", Watched)
    start = expected + away * torch.ones_like(expected) + spec.random(seed=1, spread=2.0)
    found = newton.solve(spec, blocks, target, curvature=curvature, start=start)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    values = [objective(element) for element in visited]
    assert len(values) > 4
    rounding = 1e-13 * max(abs(value) for value in values[-4:])
    assert all(new < old + rounding for old, new in itertools.pairwise(values))
