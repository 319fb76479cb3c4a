"""Fused steps on a real device: right for every shape, type and option; captured, unscaled, never waiting."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim import ScaledSGD, UnitNormSGD
from symoptim.errors import OptionError
from tests.support.infos import make_groups, parameters, set_gradients
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

pytestmark = [
    # Weights are drawn at random and normalized on purpose where the optimizer is UnitNormSGD.
    pytest.mark.filterwarnings("ignore:UnitNormSGD divides rows:symoptim.errors.GeometryWarning"),
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("case", CASES)
def test_fused_steps_equal_the_pure_ones_and_touch_nothing_else(
    case: str, name: str, options: str, dtype: torch.dtype
) -> None:
    parameter = made(CASES[case], "cuda", dtype)
    group = {"params": [parameter], "geometry": CASES[case].geometry, "axis": CASES[case].axis}
    decay = 0.1 if name == "sm" else 0.0
    optimizer = OPTIMIZERS[name](
        [group], lr=0.01, fused=True, weight_decay=decay, capturable=True, **OPTIONS[options]
    )
    for found, expected in expected_steps(optimizer, parameter, steps=3, scale=1.0):
        assert torch.allclose(found, expected, rtol=tolerance(dtype), atol=tolerance(dtype))
    assert neighbors(parameter).isnan().all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_recorded_steps_of_rows_of_all_lengths_together_equal_the_pure_ones(
    kind: type[ScaledSGD] | type[UnitNormSGD], momentum: float
) -> None:
    torch.manual_seed(0)
    rows = [(9, 40), (8, 3000), (7, 6000), (6, 5000), (5, 12288), (4, 20_000), (3, 40_000), (2, 70_000)]
    shapes = {"rows": rows, "columns": [(300, 130)], "plain": [(1001,), *[(10,)] * 40]}
    results: list[list[torch.Tensor]] = []
    for fused in (True, False):
        random = torch.Generator("cuda").manual_seed(0)
        groups = [
            {"params": [_drawn(shape, random) for shape in some], "geometry": geometry}
            for geometry, some in shapes.items()
        ]
        optimizer = kind(groups, lr=0.01, momentum=momentum, fused=fused)
        for _ in range(4):  # the first is not recorded
            for parameter in parameters(groups):
                parameter.grad.normal_(generator=random).div_(max(parameter.shape) ** 0.5)
            optimizer.step()
        results.append([parameter.detach() for parameter in parameters(groups)])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def _drawn(shape: tuple[int, ...], random: torch.Generator) -> nn.Parameter:
    """Weights with filters of about unit norm, and room for a gradient."""
    drawn = torch.randn(shape, device=random.device, generator=random)
    weight = nn.Parameter(drawn / max(shape) ** 0.5)
    weight.grad = torch.zeros_like(weight)
    return weight


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shape", [(5, 40), (3, 5000), (2, 100_000)])
def test_unit_rows_stay_unit_under_steps_of_a_thousand(shape: tuple[int, int], momentum: float) -> None:
    weight = nn.Parameter(torch.randn(shape, device="cuda"))
    optimizer = UnitNormSGD([weight], lr=1e3, momentum=momentum, fused=True, normalize=True)
    for _ in range(100):
        set_gradient(weight, 1.0)
        optimizer.step()
    assert (weight.double().norm(dim=1) - 1).abs().max() < 3e-7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_after_the_first_two_a_step_allocates_nothing_and_waits_for_nothing(
    kind: type[ScaledSGD] | type[UnitNormSGD], dtype: torch.dtype, no_synchronization: Callable[[], None]
) -> None:
    groups = make_groups("cuda", dtype)
    optimizer = kind(groups, lr=0.01, momentum=0.9, fused=True)
    set_gradients(groups, 0)
    for _ in range(2):  # the second is recorded, for which torch keeps a little memory
        optimizer.step()
    no_synchronization()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(3):
        optimizer.step()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


@pytest.mark.parametrize("first", ["eager", "captured"])
def test_a_graph_keeps_its_numbers_while_eager_steps_change_theirs(first: str) -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(8, 24, device="cuda"))
    other = nn.Parameter(weight.detach().clone())
    weight.grad = torch.ones_like(weight)
    other.grad = torch.ones_like(other)
    optimizer = ScaledSGD([weight], lr=0.01, fused=True)
    reference = ScaledSGD([other], lr=0.01, fused=False)
    if first == "eager":
        optimizer.step()
        reference.step()
    torch.cuda.synchronize()
    gc.collect()  # the end of an earlier graph would break the capture
    graph = torch.cuda.CUDAGraph()
    before = weight.detach().clone()
    with torch.cuda.graph(graph):
        optimizer.step()
    weight.detach().copy_(before)
    for rate in (0.01, 0.02, 0.03):
        optimizer.param_groups[0]["lr"] = rate
        reference.param_groups[0]["lr"] = rate
        optimizer.step()
        reference.step()
        graph.replay()
        reference.param_groups[0]["lr"] = 0.01
        reference.step()
        assert torch.allclose(weight, other, rtol=1e-5, atol=1e-6)


def test_a_scaler_neither_waits_nor_touches_gradients_and_skips_what_is_not_finite(
    no_synchronization: Callable[[], None],
) -> None:
    scaled, plain = make_groups("cuda", torch.float32), make_groups("cuda", torch.float32)
    fused, reference = ScaledSGD(scaled, lr=0.01, fused=True), ScaledSGD(plain, lr=0.01, fused=False)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    scaler.scale(torch.zeros((), device="cuda"))
    set_gradients(scaled, 1)
    set_gradients(plain, 1)
    for parameter in parameters(scaled):
        parameter.grad = parameter.grad * 1024
    kept = [parameter.grad.clone() for parameter in parameters(scaled)]
    no_synchronization()
    scaler.step(fused)
    torch.cuda.set_sync_debug_mode("default")
    scaler.update()
    reference.step()
    for one, other, gradient in zip(parameters(scaled), parameters(plain), kept, strict=True):
        assert torch.allclose(one, other, rtol=1e-5)
        assert torch.equal(one.grad, gradient)
    before = [parameter.detach().clone() for parameter in parameters(scaled)]
    parameters(scaled)[0].grad[0, 0] = torch.inf
    scaler.step(fused)
    scaler.update()
    assert all(map(torch.equal, before, parameters(scaled)))
    assert scaler.get_scale() == 512.0


def test_filters_in_long_pieces_are_refused_by_name_or_stepped_otherwise() -> None:
    weight = nn.Parameter(torch.randn(3, 4, 20, 20, device="cuda") / 40)
    weight.grad = torch.ones_like(weight)
    group = {"params": [("w", weight)], "geometry": "rows", "axis": 1}
    with pytest.raises(OptionError, match="'w' cannot take a fused step: its filters lie in 3 pieces of 400"):
        ScaledSGD([group], lr=0.1, fused=True).step()
    ScaledSGD([group], lr=0.1).step()


def test_a_rate_on_the_host_counts_after_one_on_the_device() -> None:
    weight = nn.Parameter(torch.ones(2, 4, device="cuda"))
    weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD([weight], lr=torch.tensor(0.125, device="cuda"), fused=True)
    optimizer.step()
    moved = weight.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.0
    for _ in range(3):
        optimizer.step()
    assert not torch.equal(moved, torch.ones_like(moved))
    assert torch.equal(weight, moved)


def test_a_graph_outlives_what_it_was_captured_with() -> None:
    torch.manual_seed(0)
    weight, other = (nn.Parameter(torch.randn(40, 30, device="cuda")) for _ in range(2))
    weight.grad, other.grad = torch.ones_like(weight), torch.ones_like(other)
    groups = [{"params": [weight]}, {"params": [other], "geometry": "columns"}]
    optimizer = ScaledSGD(groups, lr=0.01, fused=True)
    optimizer.step()
    torch.cuda.synchronize()
    gc.collect()  # the end of an earlier graph would break the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    before = weight.detach().clone(), other.detach().clone()
    graph.replay()
    expected = weight.detach().clone(), other.detach().clone()
    gradient, other.grad = other.grad, None  # which the graph goes on reading
    optimizer.step()  # makes everything anew
    held = [
        torch.full((n,), -1, dtype=torch.int64, device="cuda")
        for n in (64, 256, 1024, 4096)
        for _ in range(50)
    ]
    with torch.no_grad():
        weight.copy_(before[0])
        other.copy_(before[1])
    graph.replay()
    assert torch.equal(weight, expected[0])
    assert torch.equal(other, expected[1])
    assert all(bool(one.eq(-1).all()) for one in held)
    assert gradient is not None
