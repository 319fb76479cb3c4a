"""Fused steps on the CPU equal the pure ones, whatever the shape; what they cannot take is said or left."""

import weakref

import pytest
import torch
from torch import nn

from kernels.steps import CASES, OPTIMIZERS, OPTIONS, expected_steps, made, neighbors, set_gradient, tolerance
from symoptim import ScaledSGD, UnitNormSGD
from symoptim.errors import OptionError
from symoptim.kernels import dispatch

# Weights are drawn at random and normalized on purpose where the optimizer is UnitNormSGD.
pytestmark = pytest.mark.filterwarnings("ignore:UnitNormSGD divides rows:symoptim.errors.GeometryWarning")

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("case", CASES)
def test_fused_steps_equal_the_pure_ones_and_touch_nothing_else(
    case: str, name: str, options: str, dtype: torch.dtype
) -> None:
    parameter = made(CASES[case], "cpu", dtype)
    group = {"params": [parameter], "geometry": CASES[case].geometry, "axis": CASES[case].axis}
    decay = 0.1 if name == "sm" else 0.0
    optimizer = OPTIMIZERS[name]([group], lr=0.01, fused=True, weight_decay=decay, **OPTIONS[options])
    for found, expected in expected_steps(optimizer, parameter, steps=3, scale=1.0):
        assert torch.allclose(found, expected, rtol=tolerance(dtype), atol=tolerance(dtype))
    assert neighbors(parameter).isnan().all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shape", [(5, 40), (3, 5000), (2, 9000)])
def test_unit_rows_stay_unit_and_right_under_steps_of_a_thousand(
    shape: tuple[int, int], momentum: float
) -> None:
    weight = nn.Parameter(torch.randn(shape))
    optimizer = UnitNormSGD([weight], lr=1e3, momentum=momentum, fused=True, normalize=True)
    for found, expected in expected_steps(optimizer, weight, steps=1, scale=1.0):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    for _ in range(100):
        set_gradient(weight, 1.0)
        optimizer.step()
    assert (weight.norm(dim=1) - 1).abs().max() < 3e-7


@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_two_threads_give_the_same_bits_as_one(
    kind: type[ScaledSGD] | type[UnitNormSGD], momentum: float
) -> None:
    # Odd numbers of long rows: some are stepped alone. Enough of them to be cut otherwise for two threads.
    shapes = (700, 300), (1101, 4000), (13, 20_000)
    weights = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    found: list[list[torch.Tensor]] = []
    threads = torch.get_num_threads()
    for count in (1, 2):
        copies = [nn.Parameter(weight.detach().clone()) for weight in weights]
        for copy, weight in zip(copies, weights, strict=True):
            copy.grad = weight.detach().sin()
        try:
            torch.set_num_threads(count)
            optimizer = kind(copies, lr=0.01, momentum=momentum, fused=True)
            for _ in range(2):
                optimizer.step()
        finally:
            torch.set_num_threads(threads)
        found.append([copy.detach() for copy in copies])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_memory_with_gaps_is_refused_by_name_or_stepped_otherwise() -> None:
    weight = nn.Parameter(torch.randn(4, 6)[:, ::2])
    weight.grad = torch.ones_like(weight)
    before = weight.detach().clone()
    with pytest.raises(OptionError, match=r"parameter 'w' cannot take a fused step: it has gaps.*\(6, 2\)"):
        ScaledSGD([("w", weight)], lr=0.1, fused=True).step()
    assert torch.equal(weight, before)
    ScaledSGD([weight], lr=0.1).step()
    assert torch.allclose(weight, before - 0.1 * before.square().sum(1, keepdim=True))


def test_a_gradient_that_lies_otherwise_is_refused_or_stepped_otherwise() -> None:
    weight = nn.Parameter(torch.randn(3, 5))
    weight.grad = torch.arange(15.0).view(5, 3).T
    expected = weight.detach() - 0.1 * weight.detach().square().sum(1, keepdim=True) * weight.grad
    with pytest.raises(OptionError, match=r"its strides are \(5, 1\), those of its gradient \(1, 3\)"):
        ScaledSGD([weight], lr=0.1, fused=True).step()
    ScaledSGD([weight], lr=0.1).step()
    assert torch.allclose(weight, expected)


def test_short_types_are_left_to_the_reference() -> None:
    weight = nn.Parameter(torch.randn(3, 5, dtype=torch.bfloat16))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(OptionError, match=r"float32 and float64, not torch\.bfloat16"):
        ScaledSGD([weight], lr=0.1, fused=True).step()
    ScaledSGD([weight], lr=0.1).step()


def test_without_numba_steps_are_taken_and_asking_for_more_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "_missing", lambda package: package == "numba")
    weight = nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(OptionError, match="pip install numba"):
        ScaledSGD([weight], lr=0.1, fused=True).step()
    ScaledSGD([weight], lr=0.1).step()
    assert torch.allclose(weight, torch.full((2, 2), 0.8))


def test_whatever_moves_between_steps_is_followed() -> None:
    start = torch.randn(4, 3, dtype=torch.float64)
    weights = [nn.Parameter(start.clone()) for _ in range(2)]
    optimizers = [
        ScaledSGD([w], lr=0.01, momentum=0.9, fused=f) for w, f in zip(weights, (True, False), strict=True)
    ]

    def change(number: int) -> None:
        for weight, optimizer in zip(weights, optimizers, strict=True):
            match number:
                case 1:
                    weight.data = weight.detach().clone()
                case 2:
                    optimizer.state[weight]["momentum_buffer"] = torch.ones_like(weight)
                case 3:
                    optimizer.state[weight] = {"momentum_buffer": torch.full_like(weight, 2.0)}
                case 4:
                    optimizer.load_state_dict(optimizer.state_dict())
                case 5:
                    optimizer.param_groups[0].update(momentum=0.0, lr=0.02, maximize=True)
                case 6:
                    weight.data = weight.detach().T.contiguous().T
                case 7:
                    optimizer.state.clear()
                    optimizer.param_groups[0]["momentum"] = 0.5

    for number in range(10):
        torch.manual_seed(number)
        change(number)
        drawn = torch.randn(4, 3, dtype=torch.float64)
        for weight in weights:
            weight.grad = None if number == 8 else torch.empty_like(weight).copy_(drawn)
        for optimizer in optimizers:
            optimizer.step()
        assert torch.allclose(*weights, rtol=1e-13, atol=1e-13), number


def test_gradients_are_not_kept_alive() -> None:
    weight = nn.Parameter(torch.randn(3, 4))
    optimizer = ScaledSGD([weight], lr=0.01, fused=True)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    gradient = weakref.ref(weight.grad)
    optimizer.zero_grad()
    assert gradient() is None
