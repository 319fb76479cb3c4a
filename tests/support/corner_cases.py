"""Uses of operations at the edge of their rules: functions of two weights, and what is free in them."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody does
from torch import Tensor, nn

from symoptim.symmetry.discover import discover as discover_with_doubts
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.soundness import changes

# No other path is sought in these networks: they ask for values, or have parameters that are not used.
discover = functools.partial(discover_with_doubts, vouch="*")


class Function(nn.Module):
    """A function of the module itself and an input, with parameters ``p0``, ``p1`` ... of these shapes."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...], **buffers: Tensor) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        for number, shape in enumerate(shapes):
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            self.register_parameter(f"p{number}", nn.Parameter(drawn))
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def inputs() -> tuple[Tensor]:
    return (torch.randn(5, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64),)


def sound(model: nn.Module, arguments: tuple[Any, ...] | None = None) -> SymmetrySpec:
    """The group of a model, which has to leave its outputs unchanged."""
    arguments = inputs() if arguments is None else arguments
    spec = discover(model, arguments)
    assert not changes(spec, model, arguments)
    return spec


def hidden(m: Any, x: Tensor) -> Tensor:
    """Units that may be scaled, four of them."""
    return F.relu(x @ m.p0)


HIDDEN = ((4, 4), (4, 4))  # weights of hidden units, and of what reads them

CASES: dict[str, Callable[[Any, Tensor], Any]] = {
    "a power of zero of zeros is one": lambda m, x: (torch.zeros(5, 4).double() ** 0 + hidden(m, x)) @ m.p1,
    "a power of zero is one": lambda m, x: (hidden(m, x) ** 0 + hidden(m, x)) @ m.p1,
    "an exponent is not rounded": lambda m, x: hidden(m, x) ** 0.1234567 @ m.p1,
    "zeros plus a small number are not zero": lambda m, x: (
        (hidden(m, x) / (torch.zeros(5, 4).double() + 1e-5)) @ m.p1
    ),
    "zeros clamped by a small number are not zero": lambda m, x: (
        (hidden(m, x) / torch.zeros(5, 4).double().clamp(min=1e-5)) @ m.p1
    ),
    "a small number may be multiplied": lambda m, x: torch.add(hidden(m, x), 1e-5, alpha=1e5) @ m.p1,
    "a variance of zeros leaves the eps": lambda m, x: F.batch_norm(
        hidden(m, x), torch.zeros(4).double(), torch.zeros(4).double()
    ),
    "a large number is not infinite": lambda m, x: hidden(m, x).masked_fill(x > 0, -1e30) @ m.p1,
    "a large positive number is not infinite": lambda m, x: torch.where(x > 0, hidden(m, x), 1e30) @ m.p1,
    "a large number is not infinite behind a sum": lambda m, x: (
        (x @ m.p0 + m.p1[0]).masked_fill(x > 0, -1e30).sum(1)
    ),
    "minus infinity": lambda m, x: F.relu(hidden(m, x).masked_fill(x > 0, -math.inf)) @ m.p1,
    "a cast to integers": lambda m, x: (hidden(m, x) * 10).long().double() @ m.p1,
    "a cast to truth values": lambda m, x: hidden(m, x).bool().double() @ m.p1,
    "a sum of integers": lambda m, x: (hidden(m, x) * 10).detach().sum(0, dtype=torch.long).double() @ m.p1,
    "bits of another type": lambda m, x: hidden(m, x).view(torch.int64).double() @ m.p1,
    "bits of another floating type": lambda m, x: (
        hidden(m, x).half().view(torch.bfloat16).double().nan_to_num(0).clamp(-1, 1) @ m.p1
    ),
    "rounding": lambda m, x: (hidden(m, x) * 10).round() @ m.p1,
    "division rounded": lambda m, x: torch.div(hidden(m, x), 0.1, rounding_mode="floor") @ m.p1,
    "remainder": lambda m, x: torch.remainder(hidden(m, x), 0.5) @ m.p1,
    "alpha dropout": lambda m, x: F.alpha_dropout(hidden(m, x), 0.5, training=True) @ m.p1,
    "feature alpha dropout": lambda m, x: F.feature_alpha_dropout(hidden(m, x), 0.5, training=True) @ m.p1,
    "dropout": lambda m, x: F.dropout(hidden(m, x), 0.5, training=True) @ m.p1,
    "rrelu": lambda m, x: F.rrelu(x @ m.p0, training=True) @ m.p1,
    "a negative slope": lambda m, x: F.leaky_relu(x @ m.p0, -2.0) @ m.p1,
    "a slope that is a weight": lambda m, x: F.prelu(x @ m.p0, m.p1[0]) @ m.p1,
    "a tensor as exponent": lambda m, x: hidden(m, x).abs() ** m.p1[0],
    "a tensor to the power": lambda m, x: 2 ** hidden(m, x) @ m.p1,
    "bounds that scale": lambda m, x: hidden(m, x).clamp(min=m.p1[0], max=m.p1[1]) @ m.p1,
    "bounds zero and six": lambda m, x: (x @ m.p0).clamp(0, 6) @ m.p1,
    "a bound from data": lambda m, x: hidden(m, x).clamp(min=m.p1[0, 0].item()) @ m.p1,
    "a number from data": lambda m, x: (hidden(m, x) + m.p1[0, 0].item()) @ m.p1,
    "a factor from data": lambda m, x: (hidden(m, x) * m.p1[0, 0].item()) @ m.p1,
    "filled from data": lambda m, x: hidden(m, x) + torch.full((4,), m.p1[0, 0].item()).double(),
    "norm of order zero": lambda m, x: torch.linalg.vector_norm(hidden(m, x), 0, dim=1) + m.p1.sum(),
    "norm of order minus one": lambda m, x: torch.linalg.vector_norm(x @ m.p0, -1, dim=1) / m.p1.norm(),
    "norm of order infinity": lambda m, x: torch.linalg.vector_norm(x @ m.p0, math.inf, dim=1) / m.p1.norm(),
    "products along an axis": lambda m, x: hidden(m, x).prod(1, keepdim=True) @ m.p1[:1],
    "running products": lambda m, x: hidden(m, x).cumprod(1) @ m.p1,
    "logsumexp": lambda m, x: hidden(m, x).logsumexp(0) @ m.p1,
    "equality": lambda m, x: (hidden(m, x) == m.p1[0]).double() + hidden(m, x) @ m.p1,
    "comparison of equals": lambda m, x: torch.where(hidden(m, x) > m.p1[0], 1.0, 0.0),
    "scatter that multiplies": lambda m, x: hidden(m, x).scatter(
        0, torch.zeros(1, 4, dtype=torch.long), m.p1[:1], reduce="multiply"
    ),
    "scatter that reduces": lambda m, x: hidden(m, x).scatter_reduce(
        0, torch.zeros(1, 4, dtype=torch.long), m.p1[:1], "prod"
    ),
    "scatter of a number": lambda m, x: (
        hidden(m, x).scatter(0, torch.zeros(1, 4, dtype=torch.long), 1.0) @ m.p1
    ),
    "index_put by a mask of two axes": lambda m, x: (
        torch.zeros(4, 4).double().index_put((torch.eye(4, dtype=torch.bool).flip(0),), m.p0[0]) @ m.p1
    ),
    "index_put that adds": lambda m, x: (
        hidden(m, x).index_put((torch.tensor([0, 0]),), m.p1[:2], accumulate=True) @ m.p1
    ),
    "a mask of two axes": lambda m, x: m.p0[torch.eye(4, dtype=torch.bool)] * (x @ m.p1),
    "a mask of one axis": lambda m, x: x @ m.p0[torch.tensor([True, False, True, True])].sum(0) * m.p1.sum(),
    "a computed gain of a layer norm": lambda m, x: (
        F.layer_norm(x @ m.p0, (4,), m.p1[0] + m.p1[1, 1], m.p1[2], 1e-30) @ m.p1
    ),
    "a computed shift of a layer norm": lambda m, x: (
        F.layer_norm(x @ m.p0, (4,), m.p1[0], m.p1[2] + m.p1[3, 3], 1e-30) @ m.p0
    ),
    "a computed gain of an rms norm": lambda m, x: F.rms_norm(x, (4,), m.p1[0] + m.p1[1, 1], 1e-30) @ m.p0,
    "a computed gain of a batch norm": lambda m, x: F.batch_norm(
        x @ m.p0, None, None, m.p1[0] + m.p1[1, 1], m.p1[2] + m.p1[3, 3], training=True, eps=1e-30
    ),
    "the mean a layer norm returns": lambda m, x: torch.native_layer_norm(x @ m.p0, (4,), None, None, 1e-30)[
        1
    ],
    "the mean of a sum a layer norm returns": lambda m, x: torch.native_layer_norm(
        x @ m.p0 + (x @ m.p1)[:, :1], (4,), None, None, 1e-30
    )[1],
    "the deviation of a product an rms norm returns": lambda m, x: torch.ops.aten._fused_rms_norm(
        (x @ m.p0) * (x @ m.p1[:, :1]), (4,), None, 1e-30
    )[1],
    "the deviation a layer norm returns": lambda m, x: torch.native_layer_norm(
        x @ m.p0, (4,), None, None, 1e-30
    )[2],
    "the mean a batch norm returns": lambda m, x: torch.native_batch_norm(
        x @ m.p0 + m.p1[0], None, None, None, None, True, 0.1, 1e-30
    )[1],
    "the deviation a batch norm returns": lambda m, x: torch.native_batch_norm(
        x @ m.p0 + m.p1[0], None, None, None, None, True, 0.1, 1e-30
    )[2],
    "the norms a weight norm returns": lambda m, x: torch._weight_norm_interface(m.p0, m.p1[:, :1], 0)[1],
    "weight norm of all": lambda m, x: x @ torch._weight_norm(m.p0, m.p1[0, 0], -1),
    "weight norm of columns": lambda m, x: x @ torch._weight_norm(m.p0, m.p1[:1], 1),
    "group norm without places": lambda m, x: F.group_norm(x @ m.p0, 2, m.p1[0], m.p1[1], 1e-30),
    "outputs in a dictionary": lambda m, x: {"a": hidden(m, x) @ m.p1, "b": None, "c": x, "d": m.p0},
    "nothing but a parameter": lambda m, x: m.p0,
    "nothing but the input": lambda m, x: x,
    "no tensors": lambda m, x: (None, 3, hidden(m, x)),
    "nothing by nothing": lambda m, x: (hidden(m, x)[:, :0] @ m.p1[:0], hidden(m, x)[:0] @ m.p1),
    "no axes": lambda m, x: hidden(m, x).sum() * m.p1.norm() + m.p1[0, 0].amax() + m.p1[0, 0].cumsum(0),
    "complex numbers": lambda m, x: torch.complex(hidden(m, x), x @ m.p1).angle(),
    "real parts": lambda m, x: (hidden(m, x).to(torch.complex128) * 1j).imag @ m.p1,
    "written into a copy of the input": lambda m, x: x.clone().mul_(m.p0[0]).add_(1) @ m.p1,
    "addmm with factors": lambda m, x: torch.addmm(m.p1[0], x, m.p0, beta=0, alpha=2) @ m.p1,
    "sums by a factor of zero": lambda m, x: torch.add(x @ m.p0, m.p1[0], alpha=0) @ m.p1,
    "without gradients": lambda m, x: without_gradients(m, x) @ m.p1,
    "a branch by data": lambda m, x: (
        torch.cond((m.p0.sum() > 0.5), lambda x: x.sin(), lambda x: x.cos(), (hidden(m, x),)) @ m.p1
    ),
    "topk": lambda m, x: hidden(m, x).topk(2, 1)[0] @ m.p1[:2],
    "sort": lambda m, x: hidden(m, x).sort(dim=0, stable=True, descending=True)[0] @ m.p1,
    "places of the largest": lambda m, x: F.one_hot(hidden(m, x).argmax(1), 4).double() @ m.p1,
}


FREE = {
    "complex numbers": 4,
    "real parts": 4,
    "a mask of two axes": 7,
    "a mask of one axis": 1,
    "an exponent is not rounded": 4,
    "zeros plus a small number are not zero": 4,
    "zeros clamped by a small number are not zero": 4,
    "minus infinity": 4,
    "a cast to truth values": 4,
    "dropout": 4,
    "rrelu": 4,
    "a negative slope": 4,
    "a slope that is a weight": 3,
    "a factor from data": 3,
    "norm of order minus one": 1,
    "norm of order infinity": 1,
    "comparison of equals": 4,
    "a computed gain of a layer norm": 1,
    "a computed shift of a layer norm": 1,
    "a computed gain of an rms norm": 1,
    "a computed gain of a batch norm": 4,
    "the deviation of a product an rms norm returns": 1,
    "the deviation a batch norm returns": 4,
    "the norms a weight norm returns": 4,
    "weight norm of all": 1,
    "weight norm of columns": 4,
    "group norm without places": 2,
    "topk": 1,
    "sort": 4,
    "places of the largest": 1,
}
"""Rescalings that are found, of the cases that have any."""


def without_gradients(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return hidden(m, x).tanh()
