"""Fused steps on the CPU equal the pure ones, whatever the shape; what they cannot take is said or left."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, discover
from symoptim.errors import OptionError, SlowWarning
from symoptim.kernels import backend
from symoptim.optim import fused_support
from tests.support.kernel_steps import (
    CASES,
    OPTIMIZERS,
    OPTIONS,
    expected_steps,
    made,
    neighbors,
    set_gradient,
    tolerance,
)
from tests.support.sampling import one_in

# Weights are drawn at random and normalized on purpose where the optimizer is UnitNormSGD.
pytestmark = pytest.mark.filterwarnings("ignore:UnitNormSGD divides rows:symoptim.errors.GeometryWarning")

pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("case", one_in(2, CASES))
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "case", ["rows of 7", "rows of 5000", "transposed, channels last", "columns", "vector"]
)
def test_short_types_are_stepped_by_their_master_copies(
    case: str, name: str, options: str, dtype: torch.dtype
) -> None:
    parameter = made(CASES[case], "cpu", dtype)
    group = {"params": [parameter], "geometry": CASES[case].geometry, "axis": CASES[case].axis}
    decay = 0.1 if name == "sm" else 0.0
    optimizer = OPTIMIZERS[name](
        [group], lr=0.01, fused=True, weight_decay=decay, capturable=True, **OPTIONS[options]
    )
    for found, expected in expected_steps(optimizer, parameter, steps=3, scale=1.0):
        assert torch.allclose(found, expected, rtol=tolerance(dtype), atol=tolerance(dtype))
        assert torch.equal(parameter, optimizer.state[parameter]["master"].to(dtype))
    assert neighbors(parameter).isnan().all()


def test_a_short_parameter_that_was_changed_from_outside_is_stepped_from_there() -> None:
    found: list[torch.Tensor] = []
    for fused in (True, False):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(3, 5, dtype=torch.bfloat16))
        optimizer = ScaledSGD([weight], lr=0.1, momentum=0.9, fused=fused)
        for number in range(4):
            weight.grad = torch.randn_like(weight)
            optimizer.step()
            if number == 1:
                weight.data[0] = 2.0
        found.append(optimizer.state[weight]["master"])
    assert torch.allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fused", [True, None])
def test_the_full_metric_of_short_types_is_that_of_the_reference(fused: bool | None) -> None:
    found: list[list[torch.Tensor]] = []
    for given in (fused, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        spec = discover(model, (torch.rand(3, 4),))
        optimizer = FullMetricSGD(model.bfloat16(), spec, lr=0.1, momentum=0.9, fused=given)
        for _ in range(3):
            for weight in model.parameters():
                weight.grad = torch.randn_like(weight)
            optimizer.step()
        found.append([optimizer.state[weight]["master"] for weight in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(backend, "_missing", lambda package: package == "numba")
    fused_support._warn_of_slow_steps.cache_clear()
    yield
    fused_support._warn_of_slow_steps.cache_clear()


@pytest.fixture
def numba_that_fails(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    failure = "numba, which compiles the kernels, cannot be imported (ImportError: Numba needs NumPy 2.3)"
    monkeypatch.setattr(backend, "_failing", lambda package: failure if package == "numba" else "")
    fused_support._warn_of_slow_steps.cache_clear()
    yield
    fused_support._warn_of_slow_steps.cache_clear()


@pytest.mark.usefixtures("numba_that_fails")
def test_a_numba_that_cannot_be_imported_is_as_good_as_none() -> None:
    with pytest.raises(OptionError, match="Numba needs NumPy"):
        ScaledSGD([_weight()], lr=0.1, fused=True)
    optimizer = ScaledSGD([_weight()], lr=0.1)
    with pytest.warns(SlowWarning, match="Numba needs NumPy"):
        optimizer.step()


def test_why_a_package_cannot_be_imported_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "refusing.py").write_text("raise ImportError('needs something older')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "refusing, which compiles" in backend._failing("refusing")
    assert "(ImportError: needs something older)" in backend._failing("refusing")


def _weight(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    weight = nn.Parameter(torch.ones(2, 2, dtype=dtype))
    weight.grad = torch.ones_like(weight)
    return weight


@pytest.mark.usefixtures("without_numba")
def test_without_numba_fused_steps_are_refused_before_anything_changes() -> None:
    kinds = [ScaledSGD, UnitNormSGD]
    for kind in kinds:
        weight = _weight()
        with pytest.raises(
            OptionError, match=r"numba, which is not installed: pip install '\.\[fast\]'.*at None"
        ):
            kind([("w", weight)], lr=0.1, fused=True)
        assert weight.eq(1).all()
        optimizer = kind([{"params": [weight], "geometry": "plain", "fused": False}], lr=0.1)
        with pytest.raises(OptionError, match="parameter 0 of its group cannot take fused steps"):
            optimizer.add_param_group({"params": [_weight()], "fused": True})
        assert len(optimizer.param_groups) == 1
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(OptionError, match=r"parameter '0\.weight' cannot take fused steps"):
        FullMetricSGD(model, discover(model, (torch.rand(3, 4),)), fused=True)


@pytest.mark.usefixtures("without_numba")
def test_without_numba_fused_steps_do_not_get_in_through_a_load() -> None:
    optimizer = ScaledSGD([_weight()], lr=0.1, fused=False)
    saved = optimizer.state_dict()
    saved["param_groups"][0].update(fused=True, lr=0.5)
    with pytest.raises(OptionError, match="cannot take fused steps"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_weights_to_come_may_ask_for_fused_steps_and_have_to_be_there_by_then() -> None:
    weight = nn.Parameter(torch.ones(2, 2, device="meta"))
    optimizer = ScaledSGD([weight], lr=0.1, fused=True)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(OptionError, match="kernels for CPUs and CUDA devices only, not for meta"):
        optimizer.step()
    torch.utils.swap_tensors(weight, _weight())
    optimizer.step()
    assert torch.allclose(weight, torch.full((2, 2), 0.8))


@pytest.mark.usefixtures("without_numba")
def test_without_numba_slow_steps_are_taken_and_said_once() -> None:
    weight = _weight()
    optimizer = ScaledSGD([weight], lr=0.1)
    with pytest.warns(SlowWarning, match="compiled by numba, which is not installed") as said:
        optimizer.step()
    assert Path(said[0].filename) == Path(__file__)
    assert torch.allclose(weight, torch.full((2, 2), 0.8))
    ScaledSGD([_weight()], lr=0.1).step()  # a second warning would be an error here


@pytest.mark.usefixtures("without_numba")
def test_without_numba_a_slow_step_of_the_full_metric_is_said() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = FullMetricSGD(model, discover(model, (torch.rand(3, 4),)))
    model(torch.rand(3, 4)).square().mean().backward()
    with pytest.warns(SlowWarning):
        optimizer.step()


@pytest.mark.usefixtures("without_numba")
def test_without_numba_nothing_is_said_of_what_no_kernel_would_step() -> None:
    with_gaps = nn.Parameter(torch.randn(4, 6)[:, ::2])
    with_gaps.grad = torch.ones_like(with_gaps)
    ScaledSGD([with_gaps], lr=0.1).step()
    ScaledSGD([_weight()], lr=0.1, fused=False).step()
    ScaledSGD([_weight()], lr=0.1, foreach=False).step()
    ScaledSGD([nn.Parameter(torch.ones(2, 2))], lr=0.1).step()


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
