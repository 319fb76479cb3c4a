"""The steps agree with a literal transcription of the paper's Table 1 and of the recurrences."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from symoptim.geometry.filters import COLUMNS, ROWS, Axes, filter_axes, squared_norm
from symoptim.geometry.unit_norm import normalize
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update
from symoptim.updates.step import StepOptions, step

LR = 0.3


def diag(matrix: Tensor) -> Tensor:
    return torch.diag(torch.diag(matrix))


def table1_sm_hidden(w: Tensor, g: Tensor) -> Tensor:
    return w - LR * diag(w @ w.T) @ g


def table1_sm_classifier(w: Tensor, g: Tensor) -> Tensor:
    return w - LR * g @ diag(w.T @ w)


def table1_un_hidden(w: Tensor, g: Tensor) -> Tensor:
    moved = w - LR * (g - diag(g @ w.T) @ w)
    return torch.stack([row / row.norm() for row in moved])


@pytest.mark.parametrize(
    ("update", "over", "literal"),
    [
        (PLAIN, ROWS, lambda w, g: w - LR * g),
        (SCALED, ROWS, table1_sm_hidden),
        (SCALED, COLUMNS, table1_sm_classifier),
        (UNIT_NORM, ROWS, table1_un_hidden),
    ],
)
def test_step_is_the_line_of_table_1(
    update: Update, over: Axes, literal: Callable[[Tensor, Tensor], Tensor]
) -> None:
    w, g = torch.randn(2, 6, 5, dtype=torch.float64)
    w = update.start(w, over)
    stepped = step(update, w, g, StepOptions(lr=LR), over=over).weights
    torch.testing.assert_close(stepped, literal(w, g), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3), (0,)])
@pytest.mark.parametrize("update", [PLAIN, SCALED, UNIT_NORM], ids=["plain", "scaled", "unit-norm"])
@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 0), ((4, 3), 1), ((4, 3, 2, 2), 0), ((4, 3, 2, 2), 1)])
def test_batched_steps_equal_looped_ones(
    batch: tuple[int, ...], update: Update, shape: tuple[int, ...], axis: int
) -> None:
    over = filter_axes(len(shape), axis)
    w, g, b = torch.randn(3, *batch, *shape, dtype=torch.float64)
    w = update.start(w, over)
    rates = torch.rand(batch, dtype=torch.float64)
    spread = rates.reshape(*batch, *[1] * len(shape))
    together = step(update, w, g, StepOptions(lr=spread, momentum=0.9), buffer=b, over=over)
    assert together.buffer is not None
    flat = [t.reshape(-1, *shape) for t in (w, g, b, together.weights, together.buffer)]
    for rate, w1, g1, b1, new_w, new_b in zip(rates.flatten(), *flat, strict=True):
        alone = step(update, w1, g1, StepOptions(lr=rate, momentum=0.9), buffer=b1, over=over)
        torch.testing.assert_close((new_w, new_b), tuple(alone), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("update", [SCALED, UNIT_NORM], ids=["scaled", "unit-norm"])
def test_a_convolution_steps_like_the_matrix_of_its_flattened_filters(update: Update, axis: int) -> None:
    w, g = torch.randn(2, 4, 3, 2, 5, dtype=torch.float64)
    over = filter_axes(4, axis)
    w = update.start(w, over)

    def matrix(t: Tensor) -> Tensor:
        return t.movedim(axis, 0).flatten(1)

    options = StepOptions(lr=LR, momentum=0.9)
    torch.testing.assert_close(
        matrix(step(update, w, g, options, over=over).weights),
        step(update, matrix(w), matrix(g), options).weights,
    )


@pytest.mark.parametrize("update", [PLAIN, SCALED, UNIT_NORM], ids=["plain", "scaled", "unit-norm"])
def test_first_step_with_momentum_is_the_step_without(update: Update) -> None:
    w, g = torch.randn(2, 4, 3, dtype=torch.float64)
    w = update.start(w, ROWS)
    with_momentum = step(update, w, g, StepOptions(lr=LR, momentum=0.9))
    assert torch.equal(with_momentum.weights, step(update, w, g, StepOptions(lr=LR)).weights)


def test_scaled_recurrence_is_the_docstrings() -> None:
    w, g, b = torch.randn(3, 4, 3, dtype=torch.float64)
    direction = w.square().sum(1, keepdim=True) * -g
    buffer = 0.9 * b + direction
    expected = (1 - LR * 0.1) * w - LR * (direction + 0.9 * buffer)
    options = StepOptions(lr=LR, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True)
    torch.testing.assert_close(tuple(step(SCALED, w, g, options, buffer=b)), (expected, buffer))


def test_unit_norm_momentum_is_projected_before_it_is_used() -> None:
    w, g, b = torch.randn(3, 4, 3, dtype=torch.float64)
    w = normalize(w)
    plane = torch.eye(3, dtype=torch.float64) - torch.einsum("oi,oj->oij", w, w)
    buffer = torch.einsum("oij,oj->oi", plane, 0.9 * b + g)
    stepped = step(UNIT_NORM, w, g, StepOptions(lr=LR, momentum=0.9), buffer=b)
    torch.testing.assert_close(tuple(stepped), (normalize(w - LR * buffer), buffer))


def test_a_step_changes_nothing_in_place() -> None:
    w, g, b = torch.randn(3, 4, 3)
    before = [t.clone() for t in (w, g, b)]
    for update in (PLAIN, SCALED, UNIT_NORM):
        step(update, w, g, StepOptions(lr=1.0, momentum=0.9, maximize=True, weight_decay=0.1), buffer=b)
    assert all(torch.equal(old, new) for old, new in zip(before, (w, g, b), strict=True))


@given(
    shape=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    axis=st.integers(0, 1),
    decades=st.floats(-6, 6),
    momentum=st.sampled_from([0.0, 0.9]),
    decay=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None, derandomize=True)
def test_scaled_step_commutes_with_any_rescaling(
    shape: list[int], axis: int, decades: float, momentum: float, decay: float, seed: int
) -> None:
    """Weights and buffer scale with a, the gradient with 1/a: so do the new weights and the new buffer."""
    generator = torch.Generator().manual_seed(seed)
    w, g, b = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    over = filter_axes(len(shape), axis)
    spread = torch.rand(squared_norm(w, over).shape, generator=generator, dtype=torch.float64)
    a = 10.0 ** (decades * spread)
    options = StepOptions(lr=LR, momentum=momentum, weight_decay=decay)
    stepped = step(SCALED, w, g, options, buffer=b, over=over)
    moved = step(SCALED, a * w, g / a, options, buffer=a * b, over=over)
    torch.testing.assert_close(moved.weights / a, stepped.weights, rtol=1e-11, atol=1e-11)
    if momentum:
        torch.testing.assert_close(moved.buffer / a, stepped.buffer, rtol=1e-11, atol=1e-11)
