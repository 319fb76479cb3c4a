"""The group of rescalings of a model: what moves, by which exponent, along which generator.

An element of the group is a vector of log-scales, one per generator. It multiplies every entry of every
parameter and buffer by ``exp`` of a sum of *scales*, and scales are combinations of generators.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from symoptim.errors import OptionError
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.tensors import model_tensors


@dataclass(frozen=True, slots=True)
class Moved:
    """A tensor of the model: numbers of scales, broadcastable to its shape, which add up (-1 is no scale)."""

    shape: tuple[int, ...]
    terms: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class SymmetrySpec:
    """Generators of the group; ``len`` is its dimension."""

    tensors: Mapping[str, Moved]
    aliases: Mapping[str, str]
    """Other names of tied tensors."""
    names: tuple[str, ...]
    """Of the generators: where in the model each unit is."""
    scales: int
    """Number of scales."""
    exponents: Sparse
    """Scale, generator, exponent."""
    unknown: Mapping[str, int]
    """Operations nothing is known about, with their place, and how often: all they touch was pinned."""
    pinned: Mapping[str, int]
    """Operations whose arguments cannot scale, and how often."""
    approximate: Mapping[str, int]
    """Operations that are exact only up to a small constant."""

    def __len__(self) -> int:
        return len(self.names)

    def random(self, *, seed: int = 0, spread: float = 1.0) -> Tensor:
        """Log-scales of a random element, uniform in [-spread, spread]."""
        generator = torch.Generator().manual_seed(seed)
        return spread * (2 * torch.rand(len(self), generator=generator, dtype=torch.float64) - 1)

    def log_scales(self, element: Tensor, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """What an element adds to the logarithm of every entry, by name of the tensor; shapes broadcast.

        Args:
            element: one number per generator.
            names: of the tensors that are wanted; all by default.

        Returns:
            Log-scales.
        """
        scales = self._scales(element)
        found: dict[str, Tensor] = {}
        for name in self.tensors if names is None else names:
            moved = self.tensors[name]
            none = scales.new_zeros([1] * len(moved.shape))
            found[name] = sum((scales[term] for term in moved.terms), none)
        return found

    def _scales(self, element: Tensor) -> Tensor:
        """Log of every scale, and zero for no scale at the end."""
        if element.shape != (len(self),):
            raise OptionError(
                f"an element of this group has {len(self)} log-scales, got shape {tuple(element.shape)}"
            )
        element = element.double()
        values = self.exponents.values * element[self.exponents.columns]
        return torch.zeros(self.scales + 1, dtype=torch.float64).index_add_(0, self.exponents.rows, values)

    def charges(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The adjoint of :meth:`log_scales`: for every generator the sum of entries times exponents.

        Of weights times gradients it is zero, for every generator and any loss of the outputs (Noether); of
        squared weights it is what gradient flow conserves.

        Args:
            tensors: by name, of the shapes of the model's own.

        Returns:
            One number per generator.
        """
        totals = torch.zeros(self.scales + 1, dtype=torch.float64)
        for name, tensor in tensors.items():
            moved = self.tensors[name]
            for term in moved.terms:
                axes = [axis for axis, size in enumerate(term.shape) if size == 1]
                summed = tensor.double().sum(dim=axes, keepdim=True) if axes else tensor.double()
                totals.index_add_(0, term.reshape(-1) % (self.scales + 1), summed.reshape(-1))
        values = self.exponents.values * totals[self.exponents.rows]
        return torch.zeros(len(self), dtype=torch.float64).index_add_(0, self.exponents.columns, values)

    def moves(self, names: Iterable[str]) -> Tensor:
        """Which generators move any of these tensors."""
        touched = torch.zeros(self.scales + 1, dtype=torch.bool)
        for name in names:
            for term in self.tensors[name].terms:
                touched[term.reshape(-1)] = True
        touched[-1] = False
        mask = torch.zeros(len(self), dtype=torch.bool)
        mask[self.exponents.columns[touched[self.exponents.rows]]] = True
        return mask

    @torch.no_grad()
    def rescale_(self, model: nn.Module, element: Tensor) -> nn.Module:
        """Act with an element on a model, in place; its outputs stay what they were.

        Args:
            model: the one this was found on, or another of the same shapes.
            element: log-scales, one per generator.

        Returns:
            The model.
        """
        there = model_tensors(model)
        for name, log_scale in self.log_scales(element).items():
            there[name].mul_(log_scale.exp().to(there[name]))
        return model
