"""Proof by trial: random elements of a group act on a model's weights, and its outputs are compared.

In float64. The second check needs one backward pass for all generators at once: if outputs do not change
along a generator, the derivative of any loss of them along it is zero, and the charges of weights times
gradients vanish (Noether).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from symoptim.symmetry.calls import prepared
from symoptim.symmetry.exact import ExactCall, Tensors
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import arguments_of

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
    """Largest charge of a generator, by one backward pass; of those that move no running statistics.

    NaN if the model cannot be differentiated.
    """
    unknown: Mapping[str, int]
    pinned: Mapping[str, int]
    approximate: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """Whether both checks passed: errors are rounding."""
        return self.output_error < PASSING and not self.noether_residual >= PASSING

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
    """Try a group on a model, which is left as it is.

    It is called twice with the same inputs, so that what a call leaves behind counts too.

    Args:
        spec: the group.
        model: the model it was found on, in the same mode.
        example_inputs: positional arguments of a call, with values that matter now.
        keywords: its other arguments.
        elements: number of random elements.
        spread: log-scales of generators are up to this large.

    Returns:
        What was measured.

    Raises:
        SymmetryError: the group is of another model.
        TraceError: the model returns no tensors that can be seen.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> spec = discover(model, (torch.rand(5, 3),))
    >>> certify(spec, model, (torch.rand(5, 3),)).holds
    True
    """
    spec.require_model(model)
    keywords = prepared(model, arguments_of(example_inputs), keywords)
    drawn = [spec.random(seed=seed, spread=spread) for seed in range(elements)]
    without_eps = ExactCall(model, example_inputs, keywords, ignored=_guards(spec))
    as_it_is = ExactCall(model, example_inputs, keywords)
    return Certificate(
        output_error=_output_error(spec, without_eps, drawn),
        eps_error=_output_error(spec, as_it_is, drawn),
        noether_residual=_noether_residual(spec, without_eps),
        unknown=spec.unknown,
        pinned=spec.pinned,
        approximate=spec.approximate,
    )


def _guards(spec: SymmetrySpec) -> set[float]:
    """The constants that operations are exact up to."""
    found = (re.search(r"\(eps (\S+)\)$", place) for place in spec.approximate)
    return {float(one[1]) for one in found if one}


@torch.no_grad()
def _output_error(spec: SymmetrySpec, call: ExactCall, elements: list[Tensor]) -> float:
    tensors = call.tensors()
    before = call.twice(tensors)
    worst = 0.0
    for element in elements:
        worst = max(worst, difference(before, call.twice(_rescaled(spec, tensors, element))))
    return worst


def _rescaled(spec: SymmetrySpec, tensors: Tensors, element: Tensor) -> Tensors:
    scales, listed = spec.log_scales(element), spec.aliases
    return {
        name: tensor * scales[listed.get(name, name)].exp().to(tensor.device)
        if listed.get(name, name) in scales
        else tensor
        for name, tensor in tensors.items()
    }


def difference(before: list[Tensor], after: list[Tensor]) -> float:
    """Largest change, each tensor measured by its largest entry; NaN that appears is the worst of all."""
    if [one.shape for one in before] != [one.shape for one in after]:
        return float("inf")
    worst = 0.0
    for old, new in zip(before, after, strict=True):
        same = (old == new) | (old.isnan() & new.isnan())
        if bool(same.all()):
            continue
        if not old.is_floating_point():
            return float("inf")
        finite = old[old.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        error = float((new - old)[~same].abs().max()) / (scale or 1.0)
        worst = max(worst, error if error == error else float("inf"))
    return worst


def _noether_residual(spec: SymmetrySpec, call: ExactCall) -> float:
    tensors = call.tensors()
    listed = {name: spec.aliases.get(name, name) for name, _ in call.model.named_parameters()}
    leaves = {
        known: tensors[name].requires_grad_() for name, known in listed.items() if known in spec.tensors
    }
    outputs = call.once(tensors)
    generator = torch.Generator().manual_seed(0)
    loss = sum(
        (one * torch.randn(one.shape, generator=generator, dtype=one.dtype).to(one.device)).sum()
        for one in outputs
        if one.requires_grad
    )
    if not isinstance(loss, Tensor):
        return 0.0
    try:
        gradients: Any = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    except RuntimeError:  # it writes to what the backward pass needs
        return float("nan")
    pairs = zip(leaves.items(), gradients, strict=True)
    products = {name: (leaf * grad).detach() for (name, leaf), grad in pairs if grad is not None}
    size = sum(float(product.abs().sum()) for product in products.values())
    charges = spec.charges(products).abs()[~spec.moves(name for name in spec.tensors if name not in products)]
    return float(charges.max()) / size if len(charges) and size else 0.0
