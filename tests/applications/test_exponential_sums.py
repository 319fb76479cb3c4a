"""Products with the matrix of exponents, which is never formed, against the matrix itself."""

import pytest
import torch
from torch import Tensor

from symoptim.applications.canonicalize import parameters_of, squares_of
from symoptim.applications.exponential_sums import (
    EntrySums,
    ExponentialSum,
    curvature_diagonal,
    entry_sums,
    largest_change,
    merge_single_terms,
    moving_terms,
)
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.zoo import caught, group_of

NETWORKS = [
    "arch1",
    "resnet training",
    "soft experts",
    "nn.MultiheadAttention across",
    "relu rnn",
    "nn.Bilinear",
]


def matrix(spec: SymmetrySpec, parameters: dict[str, Tensor]) -> Tensor:
    """B: a row per entry, a column per generator."""
    columns: list[Tensor] = []
    for one in torch.eye(len(spec), dtype=torch.float64):
        scales = spec.log_scales(one, parameters)
        columns.append(torch.cat([scales[n].expand(p.shape).flatten() for n, p in parameters.items()]))
    return torch.stack(columns, dim=1)


def looked_at(name: str) -> tuple[SymmetrySpec, Tensor, Tensor, list[EntrySums]]:
    """A group, its matrix, squares of all entries, and the same as blocks."""
    (model, _, _), spec = caught(name), group_of(name)
    parameters = parameters_of(model, spec)
    squares = {key: squares_of(parameter, key) for key, parameter in parameters.items()}
    terms = moving_terms(spec, parameters)
    blocks = merge_single_terms([entry_sums(squares[key], terms[key]) for key in terms], spec.scales)
    return spec, matrix(spec, parameters), torch.cat([one.flatten() for one in squares.values()]), blocks


@pytest.mark.parametrize("name", NETWORKS)
def test_products_without_the_matrix_are_those_with_it(name: str) -> None:
    spec, b, squares, blocks = looked_at(name)
    element, direction = spec.random(seed=1), spec.random(seed=2)
    weights = squares * (2 * b @ element).exp()
    there = ExponentialSum(spec, blocks, element, 2.0)
    assert torch.allclose(there.gradient(), b.T @ weights, rtol=1e-10)
    assert torch.allclose(there.curvature(direction), b.T @ (weights * (b @ direction)), rtol=1e-10)
    at_rest = ExponentialSum(spec, blocks, torch.zeros_like(element), 0.0)
    assert torch.allclose(curvature_diagonal(at_rest), b.square().T @ squares, rtol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_reach_of_a_step_bounds_what_it_moves(name: str) -> None:
    spec, b, squares, blocks = looked_at(name)
    for seed in range(5):
        step = spec.random(seed=seed)
        moved = (b @ step).abs()[squares > 0].max()
        assert float(moved) <= largest_change(spec, blocks, step) * (1 + 1e-12) <= 10 * float(moved)


def test_entries_that_move_alike_are_one() -> None:
    *_, blocks = looked_at("resnet training")
    assert max(block.values.dim() for block in blocks) == 2
    assert sum(len(block.terms) == 1 for block in blocks) == 1
