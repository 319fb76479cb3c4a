"""Proof by trial: random elements of a group act on a copy of the model, and its outputs are compared.

In float64. The second check needs one backward pass for all generators at once: if outputs do not change
along a generator, the derivative of any loss of them along it is zero, and the charges of weights times
gradients vanish (Noether).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import model_tensors

NO_EPS = 1e-30  # torch refuses zero in training mode
PASSING = 1e-8
"""Errors below count as rounding: deep networks magnify that of float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """What was measured: errors are relative, zero but for rounding if every generator is a symmetry."""

    output_error: float
    """Largest change of an output by random elements, where the eps of normalizations cannot be felt."""
    eps_error: float
    """The same with every eps as it is."""
    noether_residual: float
    """Largest charge of a generator, by one backward pass; of those that move no running statistics."""
    unknown: Mapping[str, int]
    pinned: Mapping[str, int]
    approximate: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """Whether both checks passed: errors are rounding."""
        return self.output_error < PASSING and self.noether_residual < PASSING

    def __str__(self) -> str:
        """Return the verdict, and the figures it rests on."""
        return (
            f"{'holds' if self.holds else 'DOES NOT HOLD'}: outputs of rescaled copies differ by "
            f"{self.output_error:.1e} (with eps as it is {self.eps_error:.1e}), largest charge "
            f"{self.noether_residual:.1e}"
        )


def certify(
    spec: SymmetrySpec,
    model: nn.Module,
    example_inputs: tuple[Any, ...],
    keywords: Mapping[str, Any] | None = None,
    *,
    elements: int = 2,
    spread: float = 2.0,
) -> Certificate:
    """Try a group on a copy of its model.

    Args:
        spec: the group.
        model: the model it was found on, in the same mode; it is left as it is.
        example_inputs: positional arguments of a call, with values that matter now.
        keywords: its other arguments.
        elements: number of random elements.
        spread: log-scales of generators are up to this large.

    Returns:
        What was measured.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> spec = discover(model, (torch.rand(5, 3),))
    >>> certify(spec, model, (torch.rand(5, 3),)).holds
    True
    """
    inputs, named = tree_map(_exact, example_inputs), tree_map(_exact, dict(keywords or {}))
    here = copy.deepcopy(model).double()
    without_eps = _without_eps(copy.deepcopy(here))
    drawn = [spec.random(seed=seed, spread=spread) for seed in range(elements)]
    with _InFloat64():
        output_error = _output_error(spec, without_eps, inputs, named, drawn)
        eps_error = _output_error(spec, here, inputs, named, drawn)
        noether_residual = _noether_residual(spec, without_eps, inputs, named)
    return Certificate(
        output_error=output_error,
        eps_error=eps_error,
        noether_residual=noether_residual,
        unknown=spec.unknown,
        pinned=spec.pinned,
        approximate=spec.approximate,
    )


class _InFloat64(TorchDispatchMode):
    """What is asked for in float32 is made in float64: many models compute their norms in float32."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        return func(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


def _exact(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _without_eps(model: nn.Module) -> nn.Module:
    for module in model.modules():
        for name in ("eps", "variance_epsilon"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, NO_EPS)
    return model


def _outputs(model: nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Tensor]:
    """Outputs of a copy: a call in training mode moves running averages."""
    with cast("Any", torch.random).fork_rng():
        torch.default_generator.manual_seed(0)  # dropout drops the same
        found = tree_leaves(copy.deepcopy(model)(*inputs, **keywords))
    return [one for one in found if isinstance(one, Tensor) and one.is_floating_point()]


@torch.no_grad()
def _output_error(
    spec: SymmetrySpec,
    model: nn.Module,
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any],
    elements: list[Tensor],
) -> float:
    before = _outputs(model, inputs, keywords)
    rescaled = (spec.rescale_(copy.deepcopy(model), element) for element in elements)
    return max((_difference(before, _outputs(one, inputs, keywords)) for one in rescaled), default=0.0)


def _difference(before: list[Tensor], after: list[Tensor]) -> float:
    """Largest change, each output measured by its largest entry; NaN is the worst of all."""
    worst = 0.0
    for old, new in zip(before, after, strict=True):
        if not old.numel():
            continue
        scale = float(old.abs().max())
        error = float((new - old).abs().max()) / scale if scale else float(new.abs().max())
        worst = max(worst, error if error == error else float("inf"))
    return worst


def _noether_residual(
    spec: SymmetrySpec, model: nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> float:
    model = copy.deepcopy(model)
    model.requires_grad_(True)
    outputs = [one for one in tree_leaves(model(*inputs, **keywords)) if isinstance(one, Tensor)]
    generator = torch.Generator().manual_seed(0)
    loss = sum(
        (one * torch.randn(one.shape, generator=generator, dtype=one.dtype).to(one.device)).sum()
        for one in outputs
        if one.requires_grad
    )
    if not isinstance(loss, Tensor):
        return 0.0
    loss.backward()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
    there = model_tensors(model)
    products: dict[str, Tensor] = {}
    for name in spec.tensors:
        gradient = there[name].grad
        if gradient is not None:
            products[name] = (there[name] * gradient).detach()
    size = sum(float(product.abs().sum()) for product in products.values())
    charges = spec.charges(products).abs()[~spec.moves(name for name in spec.tensors if name not in products)]
    return float(charges.max()) / size if len(charges) and size else 0.0
