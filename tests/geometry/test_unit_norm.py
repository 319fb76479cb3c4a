import pytest
import torch

from symoptim.geometry.diagnostics import retraction_slope, slope, tangency
from symoptim.geometry.filters import Axes, filter_axes, norm
from symoptim.geometry.unit_norm import (
    exponential_map,
    normalize,
    normalize_once,
    project_to_tangent,
    retract,
    transport,
)

CASES = [((4, 3), 0), ((4, 3), 1), ((4, 3, 2, 2), 0), ((4, 3, 2, 2), 1), ((2, 5, 4, 3), 0)]


@pytest.fixture(params=CASES, ids=str)
def sphere(request: pytest.FixtureRequest) -> tuple[torch.Tensor, torch.Tensor, Axes]:
    """Unit filters, any vector of their shape, and the axes of a filter."""
    shape, axis = request.param
    over = filter_axes(len(shape), axis)
    w, v = torch.randn(2, 7, *shape, dtype=torch.float64)
    return normalize(w, over), v, over


def test_projection_is_tangent_and_idempotent(sphere: tuple[torch.Tensor, torch.Tensor, Axes]) -> None:
    w, v, over = sphere
    tangent = project_to_tangent(w, v, over)
    assert tangency(w, v, over) > 0.1
    assert tangency(w, tangent, over) < 1e-14
    torch.testing.assert_close(project_to_tangent(w, tangent, over), tangent)


def test_both_moves_stay_on_the_sphere(sphere: tuple[torch.Tensor, torch.Tensor, Axes]) -> None:
    w, v, over = sphere
    tangent = project_to_tangent(w, v, over)
    for move in (retract, exponential_map):
        lengths = norm(move(w, tangent, over), over)
        torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=1e-14)


def test_retraction_agrees_with_exponential_to_second_order(
    sphere: tuple[torch.Tensor, torch.Tensor, Axes],
) -> None:
    assert retraction_slope(*sphere) == pytest.approx(3, abs=0.1)


def test_slope_tells_a_worse_move_apart(sphere: tuple[torch.Tensor, torch.Tensor, Axes]) -> None:
    """The straight step without normalization is only first-order: the check above can fail."""
    w, v, over = sphere
    tangent = normalize(project_to_tangent(w, v, over), over)
    gap = slope(lambda h: float((w + h * tangent - exponential_map(w, h * tangent, over)).norm()))
    assert gap == pytest.approx(2, abs=0.1)


def test_transport_leaves_a_vector_tangent_at_the_new_point(
    sphere: tuple[torch.Tensor, torch.Tensor, Axes],
) -> None:
    w, v, over = sphere
    tangent = project_to_tangent(w, v, over)
    there = retract(w, tangent, over)
    assert tangency(there, tangent, over) > 0.1
    assert tangency(there, transport(there, tangent, over), over) < 1e-14


def test_exponential_map_of_zero_stays_put() -> None:
    w = normalize(torch.randn(3, 4))
    torch.testing.assert_close(exponential_map(w, torch.zeros_like(w)), w)


def test_normalizing_once_leaves_unit_filters_bit_identical() -> None:
    w = normalize(torch.randn(1000, 784))
    assert torch.equal(normalize_once(w), w)
    assert not torch.equal(normalize_once(w * 1.001), w * 1.001)
    rounded = w.bfloat16()
    assert torch.equal(normalize_once(rounded), rounded.float())
