"""Small constants that are added: which of them guard a division."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from symoptim.symmetry.discover import discover as discover_with_doubts
from tests.support.corner_cases import HIDDEN, Function, hidden
from tests.support.sampling import one_in

# No other path is sought in these networks: they have parameters that are not used.
discover = functools.partial(discover_with_doubts, vouch="*")

Forward = Callable[[Any, Tensor], Any]

NO_GUARDS: dict[str, tuple[Forward, int]] = {
    "multiplied by a weight": (lambda m, x: (1e-7 * hidden(m, x).mean(0) + 1e-4) @ m.p1, 0),
    "a norm that comes out": (lambda m, x: hidden(m, x).norm(dim=1) + 1e-5, 0),
    "a norm that is a factor": (lambda m, x: x * (m.p0.norm() + 1e-5), 0),
    "divided by and a factor": (lambda m, x: scaled(m, x) + x * (m.p0.norm() + 1e-5), 0),
    "a numerator": (lambda m, x: (hidden(m, x).mean(0) + 1e-5) / m.p1, 0),
    "a positive power": (lambda m, x: x * (m.p0.norm() + 1e-5) ** 2, 0),
    "a bound of a factor": (lambda m, x: x * m.p0.norm().clamp(min=1e-5), 0),
    "a bound of what may be negative": (lambda m, x: x @ (m.p0 / m.p0.mean(1).clamp(min=1e-5)), 0),
    "a bound of a negative": (lambda m, x: x @ (m.p0 / (-1.0 * m.p0.abs().mean()).clamp(min=1e-5)), 0),
    "compared with": (lambda m, x: torch.where(x > m.p0.norm() + 1e-5, 1.0, 0.0) * x, 0),
}


def scaled(m: Any, x: Tensor) -> Tensor:
    return x @ (m.p0 / (m.p0.norm() + 1e-5))


GUARDS: dict[str, tuple[Forward, int]] = {
    "divided by": (scaled, 1),
    "divided by its root": (lambda m, x: x @ (m.p0 / (m.p0.square().sum() + 1e-10).sqrt()), 1),
    "a root's inverse": (lambda m, x: x @ (m.p0 * (m.p0.square().mean() + 1e-10).rsqrt()), 1),
    "a negative power": (lambda m, x: x @ (m.p0 * (m.p0.square().mean() + 1e-10) ** -0.5), 1),
    "an inverse": (lambda m, x: x @ (m.p0 * (1 / (m.p0.norm() + 1e-5))), 1),
    "half its size": (lambda m, x: x @ (m.p0 / ((m.p0.norm() + 1e-5) * 2)), 1),
    "spread out": (lambda m, x: x @ (m.p0 / (m.p0.norm(dim=1) + 1e-5)[:, None].expand(4, 4)), 4),
    "a bound of sizes": (lambda m, x: x @ (m.p0 / m.p0.abs().mean().clamp(min=1e-5)), 1),
    "a bound of a variance": (lambda m, x: x @ (m.p0 / m.p0.var().clamp(min=1e-9).sqrt()), 1),
    "a bound": (lambda m, x: x @ normalize(m.p0, dim=1), 4),
}


@pytest.mark.parametrize("name", one_in(2, NO_GUARDS))
def test_a_constant_that_nothing_is_divided_by_cannot_be_scaled(name: str) -> None:
    forward, number = NO_GUARDS[name]
    spec = discover(Function(forward, *HIDDEN), (torch.randn(5, 4, dtype=torch.float64),))
    assert len(spec) == number
    assert not spec.approximate or name == "divided by and a factor"


@pytest.mark.parametrize("name", one_in(2, GUARDS))
def test_a_constant_that_guards_a_division_is_listed(name: str) -> None:
    forward, number = GUARDS[name]
    spec = discover(Function(forward, *HIDDEN), (torch.randn(5, 4, dtype=torch.float64),))
    assert spec.approximate
    assert len(spec) == number


def test_deep_divisors_are_gone_through_once() -> None:
    """Not once for every way through them: there are a billion."""

    def deep(m: Any, x: Tensor) -> Tensor:
        size = m.p0.norm()
        for _ in range(30):
            size = (size * size).sqrt()
        size = size + 1e-5
        for _ in range(30):
            size = (size * size).sqrt()
        return x @ (m.p0 / size)

    assert len(discover(Function(deep, *HIDDEN), (torch.randn(5, 4, dtype=torch.float64),))) == 1
