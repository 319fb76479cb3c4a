import torch

from symoptim.geometry.filters import COLUMNS, ROWS
from symoptim.geometry.scaled import scaled_gradient, scaled_inner


def literal_rows(w: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.trace(u.T @ torch.diag(torch.diag(w @ w.T)).inverse() @ v)


def literal_columns(w: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.trace(u @ torch.diag(torch.diag(w.T @ w)).inverse() @ v.T)


def test_inner_product_is_the_trace_of_equation_8() -> None:
    w, u, v = torch.randn(3, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(scaled_inner(w, u, v, ROWS), literal_rows(w, u, v))
    torch.testing.assert_close(scaled_inner(w, u, v, COLUMNS), literal_columns(w, u, v))


def test_inner_product_of_a_batch_is_one_number_per_member() -> None:
    w, u, v = torch.randn(3, 2, 6, 5, 4, dtype=torch.float64)
    batched = scaled_inner(w, u, v)
    assert batched.shape == (2, 6)
    torch.testing.assert_close(batched[1, 2], literal_rows(w[1, 2], u[1, 2], v[1, 2]))


def test_scaled_gradient_represents_the_differential() -> None:
    """<grad, v> in the metric is the plain <g, v> for every v: the definition of a gradient."""
    w, g, v = torch.randn(3, 5, 4, dtype=torch.float64)
    for over in (ROWS, COLUMNS):
        torch.testing.assert_close(scaled_inner(w, scaled_gradient(w, g, over), v, over), (g * v).sum())


def test_metric_does_not_change_with_the_scale_of_rows() -> None:
    w, u = torch.randn(2, 5, 4, dtype=torch.float64)
    a = torch.logspace(-3, 3, 5, dtype=torch.float64)[:, None]
    torch.testing.assert_close(scaled_inner(a * w, a * u, a * u), scaled_inner(w, u, u), rtol=1e-12, atol=0)
