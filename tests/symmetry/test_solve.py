"""The sparse solver against dense linear algebra."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from symoptim.symmetry import solve
from symoptim.symmetry.solve import NullSpace, null_space

Equations = list[tuple[tuple[float, ...], Tensor]]


def dense(count: int, equations: Equations) -> Tensor:
    """The matrix of a system; its first row says that unknown 0 is zero."""
    rows = [torch.eye(count, dtype=torch.float64)[0]]
    for coefficients, ids in equations:
        for equation in ids.tolist():
            row = torch.zeros(count, dtype=torch.float64)
            for coefficient, unknown in zip(coefficients, equation, strict=True):
                row[unknown] += coefficient
            rows.append(row)
    return torch.stack(rows)


def basis(count: int, found: NullSpace) -> Tensor:
    """Generators as columns."""
    matrix = torch.zeros(count, len(found.free), dtype=torch.float64)
    matrix[found.combination.rows, found.combination.columns] = found.combination.values
    return matrix


def check(count: int, equations: Equations, rank: Tensor) -> NullSpace:
    found = null_space(count, equations, rank)
    matrix, generators = dense(count, equations), basis(count, found)
    assert len(found.free) == count - int(torch.linalg.matrix_rank(matrix))
    assert (matrix @ generators).abs().max() < 1e-9 if generators.numel() else True
    assert torch.equal(generators[found.free], torch.eye(len(found.free), dtype=torch.float64))
    return found


@st.composite
def systems(draw: st.DrawFn) -> tuple[int, Equations, Tensor]:
    count = draw(st.integers(2, 12))
    unknown = st.integers(0, count - 1)
    equations: Equations = []
    for _ in range(draw(st.integers(0, 6))):
        terms = draw(st.integers(1, 4))
        coefficients = draw(
            st.lists(st.sampled_from([1, -1, 2, -2, 0.5, -0.5]), min_size=terms, max_size=terms)
        )
        ids = draw(st.lists(st.lists(unknown, min_size=terms, max_size=terms), min_size=1, max_size=3))
        equations.append((tuple(map(float, coefficients)), torch.tensor(ids)))
    rank = torch.tensor(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    return count, equations, rank


@settings(max_examples=300, deadline=None)
@given(systems())
def test_the_null_space_is_that_of_the_dense_matrix(system: tuple[int, Equations, Tensor]) -> None:
    check(*system)


def test_without_equations_everything_but_zero_is_free() -> None:
    assert check(4, [], torch.zeros(4, dtype=torch.int64)).free.tolist() == [1, 2, 3]


def test_unknowns_of_parameters_are_expressed_by_the_others() -> None:
    # A layer: weight rows 1, 2 = outputs 5, 6 minus input 4; weight column 3 = input 4 minus input 7.
    equations: Equations = [
        ((1.0, 1.0, -1.0), torch.tensor([[1, 4, 5], [2, 4, 6]])),
        ((1.0, 1.0, -1.0), torch.tensor([[3, 7, 4]])),
    ]
    rank = torch.tensor([0, 1, 1, 2, 0, 0, 0, 0])
    assert check(8, equations, rank).free.tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("length", [10, 3000])
def test_long_chains_are_merged(length: int) -> None:
    ids = torch.stack([torch.arange(1, length), torch.arange(2, length + 1)], dim=1)
    rank = torch.ones(length + 1, dtype=torch.int64)
    found = null_space(length + 1, [((1.0, -1.0), ids.flip(0))], rank)
    assert len(found.free) == 1
    pinned = null_space(length + 1, [((1.0, -1.0), ids), ((1.0,), torch.tensor([[length]]))], rank)
    assert len(pinned.free) == 0


def test_squares_that_are_averaged_need_no_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_eliminate_one", None)
    ids = torch.stack([torch.arange(2, 502), torch.full((500,), 1)], dim=1)
    again = torch.stack([torch.arange(2, 502), torch.full((500,), 502)], dim=1)
    equations: Equations = [((2.0, -1.0), ids), ((2.0, -1.0), again)]
    found = null_space(503, equations, torch.zeros(503, dtype=torch.bool))
    assert len(found.free) == 1
