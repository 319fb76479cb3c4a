"""Weights and gradients of a case, made once and shared by all contestants."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from symoptim.bench.cases import Case, Weight
from symoptim.errors import OptionError
from symoptim.geometry.filters import Axes, inner
from symoptim.routing import axes_of
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec

# Random numbers are drawn once and laid over everything: drawing 1.3 billion takes longer than any step.
# A prime number of them, so that no two rows of a matrix are alike.
BLOCK = 1_048_583
GATED_ELEMENTS = 2**26
"""A gate looks at one tensor of each kind, and at all as long as they are not more than this in all."""


Thing = TypeVar("Thing")


class Member:
    """A parameter of a case with its gradient."""

    def __init__(self, weight: Weight, parameter: nn.Parameter) -> None:
        """Take a parameter; its gradient is made here."""
        self.weight, self.parameter = weight, parameter
        self.over: Axes = axes_of(weight.geometry, weight.axis, parameter.ndim)
        self.gradient = torch.empty_like(parameter.detach())
        parameter.grad = self.gradient

    def fresh(self, *, flat: bool = False) -> nn.Parameter:
        """Another parameter over the same memory; flat, its filters are rows of a matrix."""
        weights, gradient = self.parameter.detach(), self.gradient
        if flat and weights.ndim > 2:
            weights, gradient = weights.flatten(1), gradient.flatten(1)
        parameter = nn.Parameter(weights)
        parameter.grad = gradient
        return parameter

    @property
    def has_rows(self) -> bool:
        """Whether its filters are rows, which can be of unit norm."""
        return self.weight.geometry == "rows"


class Material:
    """All members of a case on a device; ``spec`` has the symmetries of its network, if asked for."""

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype, *, symmetries: bool) -> None:
        """Make a case's tensors.

        Args:
            case: what to make.
            device: where.
            dtype: of weights and gradients.
            symmetries: whether to make the network too, and to find its symmetries.
        """
        self.case, self.device, self.dtype = case, device, dtype
        self.model: nn.Module | None = None
        self.spec: SymmetrySpec | None = None
        if symmetries and case.network is not None:
            model, inputs = case.network()
            self.spec = discover(model, inputs)
            self.model = model.to(device, dtype)
            parameters = list(self.model.parameters())
        else:
            parameters = [
                nn.Parameter(torch.empty(w.shape, device=device, dtype=dtype)) for w in case.weights
            ]
        self.members = [Member(w, p) for w, p in zip(case.weights, parameters, strict=True)]
        draw = torch.Generator().manual_seed(0)
        self.block = torch.randn(BLOCK, generator=draw).to(device, dtype)
        self._remembered: dict[str, Any] = {}

    def remembered(self, name: str, make: Callable[[], Thing]) -> Thing:
        """What was made under that name before, or is now: some things take seconds."""
        if name not in self._remembered:
            self._remembered[name] = make()
        return self._remembered[name]

    @property
    def bytes(self) -> int:
        """Size of the weights."""
        return sum(member.parameter.numel() for member in self.members) * self.dtype.itemsize

    def whole(self) -> tuple[nn.Module, SymmetrySpec]:
        """The model and its symmetries.

        Returns:
            Both.

        Raises:
            OptionError: the case is no network.
        """
        if self.model is None or self.spec is None:
            raise OptionError(f"{self.case.title} is no network, and has no symmetries to be found")
        return self.model, self.spec

    def gated(self) -> list[Member]:
        """Members a gate looks at: one of each kind, and the others while they are few."""
        kinds = {member.weight: member for member in reversed(self.members)}
        chosen = set(map(id, kinds.values()))
        room = GATED_ELEMENTS
        for member in self.members:
            room -= member.parameter.numel()
            if room >= 0:
                chosen.add(id(member))
        return [member for member in self.members if id(member) in chosen]

    @torch.no_grad()
    def fill(self, *, unit: bool, tangent: bool) -> None:
        """Lay random numbers over weights and gradients.

        Args:
            unit: rows have unit norm; else norms between 1/2 and 2.
            tangent: gradients of rows are orthogonal to them, as behind a normalization, and those of
                anything else are not; else they are anything.
        """
        for number, member in enumerate(self.members):
            weights, gradient = member.parameter.detach(), member.gradient
            self._lay(weights, 2 * number)
            self._lay(gradient, 2 * number + 1)
            if weights.ndim > 1:
                _scale(weights, member.over, self.block, unit=unit or not member.has_rows)
                gradient.mul_((gradient.numel() / gradient.shape[0]) ** -0.5)
            if tangent:
                _turn(weights, gradient, member.over, away=member.has_rows)

    def _lay(self, target: Tensor, number: int) -> None:
        """Repeat the block over a tensor, from another place for every number."""
        flat, start = target.view(-1), number * 7919 % (BLOCK // 2)
        for first in range(0, flat.numel(), BLOCK - start):
            piece = flat[first : first + BLOCK - start]
            piece.copy_(self.block[start : start + piece.numel()])


def _scale(weights: Tensor, over: Axes, block: Tensor, *, unit: bool) -> None:
    """Give filters unit norm, or norms between 1/2 and 2."""
    norms: Tensor = cast("Any", torch.linalg).vector_norm(
        weights, dim=over, keepdim=True, dtype=torch.float32
    )
    if not unit:
        wanted = block[: norms.numel()].float().sigmoid().mul(1.5).add(0.5)
        norms = norms / wanted.view(norms.shape)
    weights.div_(norms)


def _turn(weights: Tensor, gradient: Tensor, over: Axes, *, away: bool) -> None:
    """Take from gradients what lies along the filters, or add to it."""
    if not away:
        gradient.add_(weights)
    elif weights.ndim > 1:
        wide = weights.float()
        along = inner(wide, gradient.float(), over) / inner(wide, wide, over)
        gradient.addcmul_(weights, along.to(weights.dtype), value=-1)
