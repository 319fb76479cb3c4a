"""Weights and gradients of a case, made once and shared by all optimizers."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from symoptim import SymmetrySpec, discover
from symoptim.bench.cases import Case, Example, Weight, is_stepped
from symoptim.errors import OptionError
from symoptim.geometry.filters import Axes, inner
from symoptim.routing import axes_of

# Random numbers are drawn once and repeated: drawing 1.3 billion takes longer than any step. Their number is
# prime, so that no two rows of a matrix are alike.
BLOCK = 1_048_583
CHECKED_ELEMENTS = 2**26
"""Optimizers are checked on one tensor of each kind, and on all while they are not more than this in all."""

Made = TypeVar("Made")


class Pair:
    """A parameter of a case and its gradient."""

    def __init__(self, weight: Weight, parameter: nn.Parameter) -> None:
        """Make the gradient of a parameter."""
        self.weight, self.parameter = weight, parameter
        self.over: Axes = axes_of(weight.geometry, weight.axis, parameter.ndim)
        self.gradient = torch.zeros_like(parameter.detach())
        parameter.grad = self.gradient

    def new_parameter(self, *, flat: bool = False) -> nn.Parameter:
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


class CaseTensors:
    """All pairs of a case on a device, and the symmetries of its network."""

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype, *, symmetries: bool) -> None:
        """Make a case's tensors.

        Args:
            case: what to make.
            device: where.
            dtype: of weights and gradients.
            symmetries: whether to make the network, where there is one, and find its symmetries.
        """
        self.case, self.device, self.dtype = case, device, dtype
        self.example: Example | None = None
        self._spec: SymmetrySpec | str = f"{case.title} is no network, and has no symmetries to be found"
        if case.network is not None and (symmetries or case.is_own):
            self.example = case.network()
            self._spec = _symmetries(self.example) if symmetries else "symmetries were not asked for"
            self.example.model.to(device, dtype)
            parameters = list(filter(is_stepped, self.example.model.parameters()))
        else:
            parameters = [
                nn.Parameter(torch.empty(w.shape, device=device, dtype=dtype)) for w in case.weights
            ]
        self.pairs = [Pair(w, p) for w, p in zip(case.weights, parameters, strict=True)]
        self.block = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0)).to(device, dtype)
        self._cached: dict[str, Any] = {}

    def cached(self, name: str, make: Callable[[], Made]) -> Made:
        """What was made under that name before, or is now: some things take seconds."""
        if name not in self._cached:
            self._cached[name] = make()
        return self._cached[name]

    @property
    def bytes(self) -> int:
        """Size of the weights."""
        return self.case.elements * self.dtype.itemsize

    def network(self) -> tuple[nn.Module, SymmetrySpec]:
        """The model and its symmetries.

        Raises:
            OptionError: the case is no network, or its symmetries could not be found.
        """
        if self.example is None or isinstance(self._spec, str):
            raise OptionError(str(self._spec))
        return self.example.model, self._spec

    def checked_pairs(self) -> list[Pair]:
        """Pairs to check optimizers on: one of each kind, and the others while they are few."""
        kinds = {pair.weight: pair for pair in reversed(self.pairs)}
        chosen = set(map(id, kinds.values()))
        room = CHECKED_ELEMENTS
        for pair in self.pairs:
            room -= pair.parameter.numel()
            if room >= 0:
                chosen.add(id(pair))
        return [pair for pair in self.pairs if id(pair) in chosen]

    @torch.no_grad()
    def fill(self, *, unit: bool, tangent: bool) -> None:
        """Write random numbers to weights and gradients.

        Args:
            unit: rows have unit norm; else norms between 1/2 and 2.
            tangent: gradients of rows are orthogonal to them, as behind a normalization, and those of
                anything else are not; else they are anything.
        """
        for number, pair in enumerate(self.pairs):
            weights, gradient = pair.parameter.detach(), pair.gradient
            self._repeat_block(weights, 2 * number)
            self._repeat_block(gradient, 2 * number + 1)
            if weights.ndim > 1:
                _scale(weights, pair.over, self.block, unit=unit or not pair.has_rows)
                gradient.mul_((gradient.numel() / gradient.shape[0]) ** -0.5)
            if tangent:
                _project(weights, gradient, pair.over, away=pair.has_rows)

    def _repeat_block(self, target: Tensor, number: int) -> None:
        """Repeat the block over a tensor, from another offset for every number."""
        flat, start = target.reshape(-1), number * 7919 % (BLOCK // 2)  # a copy where there are gaps
        for first in range(0, flat.numel(), BLOCK - start):
            piece = flat[first : first + BLOCK - start]
            piece.copy_(self.block[start : start + piece.numel()])
        if flat.data_ptr() != target.data_ptr():
            target.copy_(flat.view_as(target))


def _symmetries(example: Example) -> SymmetrySpec | str:
    """Symmetries of a network, or why they cannot be found."""
    try:
        return discover(example.model, example.arguments, example.keywords)
    except Exception as error:  # of a model of the user's own: other optimizers need no symmetries
        return f"its symmetries cannot be found: {first_line(error)}"


def first_line(error: Exception) -> str:
    r"""An error in a line.

    >>> first_line(ValueError("too large\nsee below")), first_line(OptionError("too large"))
    ('ValueError: too large', 'too large')
    """
    lines = str(error).strip().splitlines() or ["no reason given"]
    kind = "" if isinstance(error, OptionError) else f"{type(error).__name__}: "
    return f"{kind}{lines[0]}"[:300]


def _scale(weights: Tensor, over: Axes, block: Tensor, *, unit: bool) -> None:
    """Give filters unit norm, or norms between 1/2 and 2."""
    norms: Tensor = cast("Any", torch.linalg).vector_norm(
        weights, dim=over, keepdim=True, dtype=torch.float32
    )
    if not unit:
        wanted = block[: norms.numel()].float().sigmoid().mul(1.5).add(0.5)
        norms = norms / wanted.view(norms.shape)
    weights.div_(norms)


def _project(weights: Tensor, gradient: Tensor, over: Axes, *, away: bool) -> None:
    """Remove the component of gradients along the filters, or add one."""
    if not away:
        gradient.add_(weights)
    elif weights.ndim > 1:
        wide = weights.float()
        along = inner(wide, gradient.float(), over) / inner(wide, wide, over)
        gradient.addcmul_(weights, along.to(weights.dtype), value=-1)
