"""The group of rescalings of a model: what moves, by which exponent, along which generator.

An element of the group is a vector of log-scales, one per generator. It multiplies every entry of every
parameter and buffer by ``exp`` of a sum of *scales*, and scales are combinations of generators. The group is
commutative: ``-element`` is the inverse, ``one + other`` the composition, zeros the identity.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from symoptim.errors import OptionError, with_article
from symoptim.modules import require_module
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.state import (
    TOLERANCE,
    require_movable,
    require_shapes,
    require_ties,
    require_tolerance,
    rescaled,
)
from symoptim.symmetry.tensors import model_tensors, on_cpu

if TYPE_CHECKING:
    from symoptim.symmetry.certify import Certificate


def require_spec(spec: object) -> None:
    """Refuse what are no symmetries, such as a model where these are asked for."""
    if not isinstance(spec, SymmetrySpec):
        raise OptionError(
            "spec must be the symmetries of a model, of symoptim.discover; got "
            f"{with_article(type(spec).__name__)}: give models first and spec after them, or spec=spec"
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """A tensor of the model: numbers of scales, broadcastable to its shape, which add up (-1 is no scale)."""

    shape: tuple[int, ...]
    terms: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SymmetrySpec:
    """Generators of the group; ``len`` is its dimension, ``print`` shows what moves with what."""

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
    recorded: str = ""
    """Why one real pass had to be watched, if the model could not be exported: holds for that way through."""
    modes: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Mode it was found in: whether the model (``""``) was in training mode, and modules that differ."""
    unreached: tuple[str, ...] = ()
    """Parameters that no pass has used; what could meet them is pinned."""
    paths: tuple[str, ...] = ()
    """What else decides the way through the model, and was pinned or vouched for, in words."""
    examples: "tuple[tuple[tuple[Any, ...], Mapping[str, Any]], ...]" = ()
    """Arguments of the calls it was found by, copies; neither written down nor pickled with it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without the examples: a batch of data does not belong into a checkpoint."""
        values = [() if one.name == "examples" else getattr(self, one.name) for one in fields(self)]
        return SymmetrySpec, tuple(values)

    def __deepcopy__(self, _: dict[int, Any]) -> "SymmetrySpec":
        """The same: nothing of it changes."""
        return self

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<SymmetrySpec: {len(self)} rescalings of {len(self.tensors)} tensors>"

    def __str__(self) -> str:
        """Return a table: how many units of which layer, and what moves with them."""
        from symoptim.symmetry.describe import text_of  # it is about this class

        return text_of(self)

    @on_cpu
    def random(self, *, seed: int = 0, spread: float = 1.0) -> Tensor:
        """Log-scales of a random element, uniform in [-spread, spread]."""
        if not 0 <= spread < float("inf"):
            raise OptionError(f"spread must be a finite number, 0 or more, got {spread}")
        generator = torch.Generator().manual_seed(seed)
        return spread * (2 * torch.rand(len(self), generator=generator, dtype=torch.float64) - 1)

    @on_cpu
    def log_scales(self, element: Tensor, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """What an element adds to the logarithm of every entry, by name of the tensor; shapes broadcast.

        Args:
            element: one number per generator.
            names: of the tensors that are wanted; all by default.

        Returns:
            Log-scales.
        """
        return {name: sum(terms[1:], terms[0]) for name, terms in self.log_terms(element, names).items()}

    def log_terms(self, element: Tensor, names: Iterable[str] | None = None) -> dict[str, list[Tensor]]:
        """The same before it is added up: a row's part, a column's part, which are small."""
        self._require_element(element)
        scales = self.by_scale(element.double())
        found: dict[str, list[Tensor]] = {}
        for name in self.tensors if names is None else names:
            moved = self.tensors[name]
            terms = [scales[term] for term in moved.terms]
            found[name] = terms or [scales.new_zeros([1] * len(moved.shape))]
        return found

    @on_cpu
    def by_generator(self, totals: Tensor) -> Tensor:
        """Numbers of scales, the last of which is of none, added up for every generator, times exponents."""
        values = self.exponents.values * totals[self.exponents.rows]
        return torch.zeros(len(self), dtype=torch.float64).index_add_(0, self.exponents.columns, values)

    @on_cpu
    def by_scale(self, element: Tensor) -> Tensor:
        """Numbers of generators added up for every scale, times exponents; zero for no scale at the end."""
        values = self.exponents.values * element[self.exponents.columns]
        return torch.zeros(self.scales + 1, dtype=torch.float64).index_add_(0, self.exponents.rows, values)

    def _require_element(self, element: Tensor) -> None:
        if not isinstance(element, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"an element is a tensor of {len(self)} log-scales, got {type(element).__name__}"
            )
        if element.shape != (len(self),):
            raise OptionError(
                f"an element of this group has {len(self)} log-scales, got shape {tuple(element.shape)}"
            )
        if not bool(element.isfinite().all()):
            raise OptionError("log-scales must be finite, and some of these are not")

    @on_cpu
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
                totals.index_add_(0, term.reshape(-1) % (self.scales + 1), summed.reshape(-1).cpu())
        return self.by_generator(totals)

    @on_cpu
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
    def rescale_(
        self,
        model: nn.Module,
        element: Tensor,
        *,
        optimizer: Optimizer | None = None,
        inputs: object = None,
        tolerance: float = TOLERANCE,
    ) -> nn.Module:
        """Act with an element on a model, in place; its outputs stay what they were.

        Products are taken in float64 and rounded once; entries too small for their precision become zero.
        Where normalizations have an eps (``approximate``), the change of outputs is measured on a copy
        before the model is changed.

        Args:
            model: the one this was found on, or another of the same shapes and ties; compiled or wrapped for
                data parallelism or not.
            element: log-scales, one per generator.
            optimizer: its state becomes what it had been, had the weights always been scaled so.
            inputs: to measure on: positional arguments of a call, a dictionary of others, or a pair of both;
                a list of several calls. Those it was found by (``examples``) by default.
            tolerance: relative change of outputs that is accepted; ``math.inf`` for any, without measuring.

        Returns:
            The model.

        Raises:
            OptionError: the element has another size, or the optimizer's state cannot be moved.
            SymmetryError: the model is another one, entries would be too large, or outputs would change by
                more than the tolerance; nothing was changed.

        >>> from symoptim.symmetry.discover import discover
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> x = torch.rand(5, 3)
        >>> spec, before = discover(model, (x,)), model(x)
        >>> torch.allclose(spec.rescale_(model, spec.random(seed=1))(x), before, atol=1e-5)
        True
        """
        there = self.require_model(model)
        log_terms = self.log_terms(element)
        if optimizer is not None:
            require_movable(optimizer, model)
        require_tolerance(tolerance)
        if self.approximate and tolerance < math.inf:
            from symoptim.symmetry.eps_effect import require_small_effect  # it is about this class

            require_small_effect(self, model, element, inputs, tolerance)
        for tensor, new in rescaled(there, log_terms, optimizer):
            tensor.copy_(new)
        return model

    def require_model(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's tensors by name; an error if they are not those this group is about."""
        model = require_module(model)
        there = model_tensors(model)
        shapes = {name: moved.shape for name, moved in self.tensors.items()}
        require_shapes(there, shapes, type(model).__name__)
        require_ties(there, self.tensors, self.aliases)
        return there

    def certify(
        self,
        model: nn.Module,
        example_inputs: tuple[Any, ...],
        keywords: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "Certificate":
        """Try the group on a copy of its model: see :func:`.certify.certify`."""
        from symoptim.symmetry.certify import certify  # it is about this class

        return certify(self, model, example_inputs, keywords, **options)

    def to_json(self) -> str:
        """All of the group as text."""
        from symoptim.symmetry.serialization import to_json  # it is about this class

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> "SymmetrySpec":
        """A group from text that :meth:`to_json` wrote."""
        from symoptim.symmetry.serialization import from_json  # it is about this class

        return from_json(text)
