"""A step that is refused changes nothing: not one weight, no state, no counter, of any optimizer."""

import functools
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from symoptim import FullMetricSGD, ScaledSGD, UnitNormSGD, discover, invariant
from symoptim.errors import GradientError, LayoutError, OptionError
from symoptim.symmetry.spec import SymmetrySpec

pytestmark = pytest.mark.filterwarnings("ignore:UnitNormSGD:symoptim.errors.GeometryWarning")
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


def network(device: str) -> nn.Sequential:
    """Nine tensors: the first two have nearly all entries, the last ones are small."""
    wide = [nn.Linear(32, 64, bias=False), nn.ReLU(), nn.Linear(64, 32, bias=False), nn.ReLU()]
    narrow = [nn.Linear(32, 8, bias=False)]
    for _ in range(6):
        narrow += [nn.ReLU(), nn.Linear(8, 8, bias=False)]
    return nn.Sequential(*wide, *narrow).to(device, torch.float64)


@functools.cache
def symmetries() -> SymmetrySpec:
    return discover(network("cpu"), (torch.zeros(5, 32, dtype=torch.float64),))


Make = Callable[[nn.Module, bool | None], Optimizer]


def _by_filters(kind: type[ScaledSGD] | type[UnitNormSGD]) -> Make:
    return lambda model, fused: kind(model.parameters(), lr=1e-3, momentum=0.9, fused=fused)


def _full(model: nn.Module, fused: bool | None) -> Optimizer:
    return FullMetricSGD(model, symmetries(), lr=1e-3, momentum=0.9, fused=fused)


def _charted(kind: Any, **options: Any) -> Make:
    return lambda model, fused: invariant(kind, model.parameters(), lr=1e-3, fused=fused, **options)


def _fully_charted(kind: Any, **options: Any) -> Make:
    return lambda model, fused: invariant(kind, model, spec=symmetries(), lr=1e-3, fused=fused, **options)


OPTIMIZERS: dict[str, Make] = {
    "ScaledSGD": _by_filters(ScaledSGD),
    "UnitNormSGD": _by_filters(UnitNormSGD),
    "FullMetricSGD": _full,
    "invariant SGD": _charted(SGD, momentum=0.9),
    "invariant AdamW": _charted(AdamW),
    "SGD in the full metric": _fully_charted(SGD, momentum=0.9),
    "AdamW in the full metric": _fully_charted(AdamW),
}


def _sparse(weight: nn.Parameter) -> None:
    weight.grad = torch.ones_like(weight).detach().to_sparse()


def _complex(weight: nn.Parameter) -> None:
    weight.grad_dtype = None  # by which torch allows it
    weight.grad = torch.ones_like(weight, dtype=torch.complex64)


def _misshapen(weight: nn.Parameter) -> None:
    weight.data = torch.ones(9, 8, dtype=weight.dtype, device=weight.device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spoil", [_sparse, _complex, _misshapen])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_bad_gradient_of_the_last_of_nine_tensors_changes_nothing(
    name: str, fused: bool, spoil: Callable[[nn.Parameter], None], device: str
) -> None:
    if fused and device == "cpu":
        pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")
    if spoil is _complex and not hasattr(torch.Tensor, "grad_dtype"):
        pytest.skip("this torch has no gradients of another type than their tensor's")
    model = network(device)
    x = torch.randn(5, 32, dtype=torch.float64, device=device)
    optimizer = OPTIMIZERS[name](model, fused)
    model(x).square().mean().backward()
    optimizer.step()
    model(x).square().mean().backward()
    weights = list(model.parameters())
    spoil(weights[-1])
    before, state = (
        deepcopy([weight.detach() for weight in weights]),
        deepcopy(optimizer.state_dict()["state"]),
    )
    gradients = deepcopy([weight.grad for weight in weights[:-1]])
    with pytest.raises(GradientError, match="the gradient of parameter"):
        optimizer.step()
    assert all(map(torch.equal, weights, before))
    torch.testing.assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)
    torch.testing.assert_close([weight.grad for weight in weights[:-1]], gradients, rtol=0, atol=0)


@pytest.mark.parametrize("fused", [None, False])
def test_a_bad_rate_of_the_last_group_changes_nothing(fused: bool | None) -> None:
    weights = [nn.Parameter(torch.randn(3, 4)) for _ in range(2)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD([{"params": [weight]} for weight in weights], lr=0.1, fused=fused)
    optimizer.param_groups[1]["lr"] = torch.tensor([0.1, 0.2])
    before = deepcopy([weight.detach() for weight in weights])
    with pytest.raises((RuntimeError, ValueError)):
        optimizer.step()
    assert all(map(torch.equal, weights, before))


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"foreach": True}], ids=str)
@pytest.mark.parametrize("option", ["lr", "weight_decay"])
def test_an_option_that_is_no_number_changes_nothing(option: str, options: dict[str, bool]) -> None:
    weights = [nn.Parameter(torch.randn(3, 4)) for _ in range(9)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD([{"params": [weight]} for weight in weights], lr=0.1, momentum=0.9, **options)
    optimizer.step()
    optimizer.param_groups[-1][option] = "x"
    before = deepcopy([weight.detach() for weight in weights])
    with pytest.raises(ValueError, match="could not convert"):
        optimizer.step()
    assert all(map(torch.equal, weights, before))


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"foreach": True}], ids=str)
def test_a_state_of_another_shape_changes_nothing(options: dict[str, bool]) -> None:
    weights = [nn.Parameter(torch.randn(3, 4)) for _ in range(9)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = ScaledSGD(weights, lr=0.1, momentum=0.9, **options)
    optimizer.step()
    optimizer.state[weights[-1]]["momentum_buffer"] = torch.zeros(2, 2)
    before = deepcopy([weight.detach() for weight in weights])
    with pytest.raises(OptionError, match=r"'momentum_buffer' of a parameter of shape \(3, 4\) has shape"):
        optimizer.step()
    assert all(map(torch.equal, weights, before))


@pytest.mark.parametrize("kind", [ScaledSGD, UnitNormSGD])
def test_autograd_does_not_see_clipping_and_it_is_refused(kind: type[ScaledSGD]) -> None:
    weight = torch.eye(2, requires_grad=True).clone()
    with pytest.raises(OptionError, match=r"max_norm=1\.0 and differentiable=True cannot be combined"):
        kind([weight], lr=0.1, max_norm=1.0, differentiable=True)


def _bad_rate(optimizer: Optimizer, _: nn.Module) -> None:
    optimizer.param_groups[-1]["lr"] = torch.tensor([0.1, 0.2])


def _no_kernel(optimizer: Optimizer, model: nn.Module) -> None:
    optimizer.param_groups[-1]["fused"] = True
    weight = model[0].weight
    weight.data = (
        weight.data.expand(3, *weight.shape)[0].T.contiguous().T
    )  # of other strides than its gradient


def _failing(optimizer: Optimizer, _: nn.Module) -> None:
    for group in optimizer.param_groups:
        group["lr"] = "fast"


def _bad_state(optimizer: Optimizer, model: nn.Module) -> None:
    state = optimizer.state[list(model.parameters())[-1]]
    assert any(value.ndim for value in state.values())
    state.update({key: torch.zeros(2, 2) for key, value in state.items() if value.ndim})


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("spoil", [_bad_rate, _no_kernel, _failing, _bad_state])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_refused_step_does_not_clip(
    name: str, spoil: Callable[[Optimizer, nn.Module], None], fused: bool | None
) -> None:
    if spoil is _no_kernel:
        if "SGD" not in name or "invariant" in name or "SGD in" in name:
            pytest.skip("it is stepped by torch's operations")
        pytest.importorskip("numba", reason="the kernels for CPUs are compiled by numba: pip install numba")
    model = network("cpu")
    optimizer = OPTIMIZERS[name](model, fused)
    optimizer.set_max_norm(1e-12)
    x = torch.randn(5, 32, dtype=torch.float64)
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    spoil(optimizer, model)
    weights = [weight.detach().clone() for weight in model.parameters()]
    before = deepcopy([weight.grad for weight in model.parameters()])
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        optimizer.step()
    assert all(map(torch.equal, [weight.grad for weight in model.parameters()], before))
    assert all(map(torch.equal, model.parameters(), weights))


def test_a_weight_that_cannot_be_written_is_refused_before_others_are_normalized() -> None:
    first = nn.Parameter(torch.full((3, 4), 2.0))
    overlapping = nn.Parameter(torch.ones(1, 4).expand(3, 4))
    with pytest.raises(LayoutError, match="parameter 1 of its group has several entries in the same memory"):
        UnitNormSGD([first, overlapping], lr=0.1)
    assert first.eq(2.0).all()


@pytest.mark.parametrize("group", [{"param": [nn.Parameter(torch.eye(2))]}, {}])
def test_a_group_without_params_is_refused(group: dict[str, Any]) -> None:
    model, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), torch.rand(4, 2)
    spec = discover(model, (x,))
    for make in (
        lambda: ScaledSGD([group]),
        lambda: UnitNormSGD([group]),
        lambda: invariant(AdamW, [group]),
        lambda: FullMetricSGD(model, spec, groups=[group]),
        lambda: invariant(AdamW, model, spec=spec, groups=[group]),
    ):
        with pytest.raises(OptionError, match="has its parameters as 'params', and this one"):
            make()
