"""Recorded steps on a real device: whatever comes between them, each is the step of its own numbers."""

import gc
import random

import pytest
import torch
from torch import nn

from symoptim import ScaledSGD, UnitNormSGD

pytestmark = [
    # Weights are drawn at random and normalized on purpose where the optimizer is UnitNormSGD.
    pytest.mark.filterwarnings("ignore:UnitNormSGD divides rows:symoptim.errors.GeometryWarning"),
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS = ["plain", "slow", "moved", "captured", "scaled", "rate on the device"]
Kind = type[ScaledSGD] | type[UnitNormSGD]


def optimizer_of(kind: Kind, momentum: float, *, fused: bool) -> tuple[ScaledSGD | UnitNormSGD, nn.Parameter]:
    """One parameter, the same every time, with a gradient."""
    drawn = torch.randn(6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = nn.Parameter(drawn.to("cuda"))
    weight.grad = torch.zeros_like(weight)
    return kind([weight], lr=0.01, momentum=momentum, fused=fused), weight


def take(kind: str, optimizer: ScaledSGD | UnitNormSGD, weight: nn.Parameter) -> None:
    """One step of a kind that kernels know."""
    group = optimizer.param_groups[0]
    group["lr"] = 0.003 if kind == "slow" else 0.01
    if kind == "rate on the device":
        group["lr"] = torch.tensor(0.02, device="cuda", dtype=torch.float64)
    if kind == "moved":
        before = weight.grad
        assert before is not None
        weight.grad = before.clone()
        before.fill_(torch.nan)  # for whoever still reads there
    if kind == "scaled":
        weight.grad.mul_(8)
        optimizer.grad_scale = torch.tensor(8.0, device="cuda")
        optimizer.found_inf = torch.tensor(0.0, device="cuda")
    if kind == "captured":
        gc.collect()  # the end of an earlier graph would break the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.step()
        graph.replay()
    else:
        optimizer.step()
    if kind == "scaled":
        del optimizer.grad_scale, optimizer.found_inf


def test_a_step_after_one_that_failed_half_way_has_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, weight = optimizer_of(ScaledSGD, 0.0, fused=True)
    reference, other = optimizer_of(ScaledSGD, 0.0, fused=False)
    for parameter in (weight, other):
        parameter.grad = torch.ones_like(parameter) / 10
    for kind in ("plain", "plain", "plain"):
        take(kind, fused, weight)
        reference.step()

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("symoptim.kernels.triton.launcher.CudaLauncher._replay", fail)
        with pytest.raises(MemoryError):
            take("slow", fused, weight)
    take("plain", fused, weight)
    reference.step()
    torch.testing.assert_close(weight, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_steps_of_all_kinds_in_any_order_equal_the_pure_ones(kind: Kind, seed: int, momentum: float) -> None:
    draw = random.Random(seed)
    # Often enough the same again, which is the shortest way.
    kinds = ["plain"] * 3 + [one for _ in range(12) for one in [draw.choice(KINDS)] * draw.choice([1, 1, 3])]
    fused, weight = optimizer_of(kind, momentum, fused=True)
    reference, other = optimizer_of(kind, momentum, fused=False)
    for number, name in enumerate(kinds):
        gradient = torch.randn(6, 40, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        for parameter in (weight, other):
            assert parameter.grad is not None
            parameter.grad.copy_(gradient / 10)
        take(name, fused, weight)
        reference.param_groups[0]["lr"] = {"slow": 0.003, "rate on the device": 0.02}.get(name, 0.01)
        reference.step()
        torch.testing.assert_close(
            weight, other, rtol=1e-10, atol=1e-12, msg=f"{name}, {kinds[: number + 1]}"
        )
