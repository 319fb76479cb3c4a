"""Complex numbers between two layers, against the true dimension."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from symoptim.symmetry.discover import discover
from tests.support.oracle import exact, true_dimension
from tests.support.soundness import changes
from tests.support.zoo.animal import Inputs, Lambda, rand


def measured(model: nn.Module, inputs: Inputs) -> int:
    """What is found: all there is, and true."""
    torch.manual_seed(0)
    model = exact(model)
    arguments = inputs(torch.Generator().manual_seed(2))
    spec = discover(model, arguments)
    assert not spec.unknown
    assert not changes(spec, model, arguments)
    assert len(spec) == true_dimension(model, inputs)
    return len(spec)


def rotary(self: nn.Module, x: Tensor) -> Tensor:
    """Attention with one head of two pairs, which are turned as complex numbers."""
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.1], dtype=x.dtype)
    turn = torch.polar(torch.ones_like(angle), angle)

    def turned(heads: Tensor) -> Tensor:
        pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * turn).flatten(-2)

    scores = turned(self.query(x)) @ turned(self.key(x)).transpose(-1, -2)
    return self.out(scores.softmax(dim=-1) @ self.value(x))


def test_a_pair_that_is_rotated_has_one_scale() -> None:
    linears = {name: nn.Linear(3, 4) for name in ("query", "key", "value")}
    assert measured(Lambda(rotary, **linears, out=nn.Linear(4, 2)), rand(2, 3, 3)) == 2 + 4


@pytest.mark.parametrize(
    ("between", "units"),
    [
        (lambda h: relu(torch.fft.fft(torch.fft.fft(h, dim=-1), dim=-2).real), 1),  # FNet mixes all
        (lambda h: relu(torch.fft.fftn(h, dim=(1,)).real), 4),
        (lambda h: torch.fft.rfft(h, dim=1).abs(), 4),
        (lambda h: torch.fft.irfft(torch.fft.rfft(h, dim=1), n=4, dim=1).relu(), 4),
        (lambda h: torch.polar(relu(h), torch.ones_like(h)).imag, 4),
        (lambda h: relu(torch.complex(h, 2 * h).conj().imag), 4),
        (lambda h: torch.complex(h, h).exp().real, 0),
    ],
)
def test_units_that_pass_through_complex_numbers(between: Callable[[Tensor], Tensor], units: int) -> None:
    model = Lambda(
        lambda self, x: self.head(between(self.first(x))), first=nn.Linear(3, 4), head=nn.Linear(4, 2)
    )
    assert measured(model, rand(4, 4, 3)) == units
