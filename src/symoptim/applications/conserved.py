r"""Quantities that gradient flow conserves, one per generator, recorded along a training run.

The loss does not change along a generator with exponents B, so the gradient is orthogonal to it:
:math:`\sum_e B_{ej} \theta_e g_e = 0`. Following minus the gradient, :math:`Q_j = \sum_e B_{ej} \theta_e^2`
then never changes. A step of finite length changes it by :math:`\eta^2 \sum_e B_{ej} g_e^2`: a run of given
length :math:`\eta \times` steps drifts in proportion to :math:`\eta`. Momentum, weight decay and adaptive
steps change it otherwise, and by how much is what the drift shows. Reference: Neural Mechanics,
arXiv:2012.04728.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from symoptim.applications.canonicalize import parameters_of, squares_of
from symoptim.applications.exponential_sums import at_identity, curvature_diagonal, entry_sums, moving_terms
from symoptim.errors import OptionError
from symoptim.modules import unwrapped, unwrapped_optimizer
from symoptim.symmetry.spec import SymmetrySpec, require_spec


class Curve(NamedTuple):
    """Drift along a run: of the middle quantity, and of the one that drifts most."""

    steps: list[int]
    median: list[float]
    largest: list[float]


class ConservedQuantities:
    """A recorder of a model's conserved quantities.

    >>> from symoptim.symmetry.discover import discover
    >>> model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(5, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    >>> watched = ConservedQuantities(model, discover(model, (x,))).attach(optimizer)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model(x).square().sum().backward()
    ...     optimizer.step()
    >>> watched.steps, tuple(watched.values.shape)
    ([0, 1, 2, 3], (4, 4))
    """

    conserved: Tensor
    """Which generators move nothing but trained parameters, and statistics that are only written.

    Trained is what requires a gradient and is in a group of an attached optimizer, if there is any.
    """

    def __init__(self, model: nn.Module, spec: SymmetrySpec, *, every: int = 1, limit: int = 1000) -> None:
        """Choose what is recorded, and how often; the weights as they are become the first record.

        Args:
            model: in the mode it is trained in.
            spec: its group.
            every: steps from one record to the next.
            limit: records that are kept; when there are more, every second is dropped and ``every`` doubles,
                until :meth:`clear`.

        Raises:
            OptionError: ``every`` or ``limit`` is too small.
            SymmetryError: the group is of another model, or weights are not finite.
        """
        require_spec(spec)
        if every < 1 or limit < 2:
            raise OptionError(f"every must be 1 or more and limit 2 or more, got {every} and {limit}")
        self.model, self.spec, self.limit, self._chosen = unwrapped(model), spec, limit, every
        self._attached: list[tuple[Optimizer, RemovableHandle]] = []
        self.clear()

    def clear(self) -> None:
        """Forget all records, and begin anew with the weights as they are.

        Raises:
            SymmetryError: weights are not finite.
        """
        self._count, self.steps, self._rows = 0, list[int](), list[Tensor]()
        self.every = self._chosen
        self._conserved_before = torch.ones(len(self.spec), dtype=torch.bool)
        self._update_conserved()
        self.record()

    def _update_conserved(self) -> None:
        optimizers = [optimizer for optimizer, _ in self._attached]
        untrained = _read_but_not_trained(self.model, self.spec, optimizers)
        self.conserved = self._conserved_before & ~self.spec.moves(untrained)

    def attach(self, optimizer: Optimizer) -> "ConservedQuantities":
        """Record after steps of an optimizer, which trains what is in its groups now; returns itself."""
        optimizer = unwrapped_optimizer(optimizer)
        self._attached.append((optimizer, optimizer.register_step_post_hook(self._after_step)))
        self._update_conserved()
        return self

    def detach(self) -> None:
        """Record no more."""
        for _, handle in self._attached:
            handle.remove()
        self._attached.clear()
        # What one optimizer has not conserved, no other brings back.
        self._conserved_before = self.conserved

    def _after_step(self, *_: object) -> None:
        self._count += 1
        if self._count % self.every == 0:
            self.record()

    @torch.no_grad()
    def record(self) -> None:
        """Record the quantities of the weights as they are; a second time at one step replaces the first.

        Weights that are not finite after a step are recorded as they are: where a run has diverged,
        ``values``, ``drift`` and ``curve`` are nan or infinite. Before the first step they are an error.

        Raises:
            SymmetryError: weights are not finite at the start.
        """
        again = self.steps[-1:] == [self._count]
        if len(self.steps) == self.limit and not again:
            self.steps, self._rows, self.every = self.steps[::2], self._rows[::2], 2 * self.every
            if self._count % self.every:
                return
        parameters = parameters_of(self.model, self.spec)
        if self._count == 0:
            self._mass = _mass(self.spec, parameters)
        squares = {name: tensor.to("cpu", torch.float64).square() for name, tensor in parameters.items()}
        last = len(self.steps) - again
        self.steps[last:], self._rows[last:] = [self._count], [self.spec.charges(squares)]

    @property
    def values(self) -> Tensor:
        """The quantities, ``(records, generators)``, in float64."""
        return torch.stack(self._rows)

    def drift(self) -> Tensor:
        r"""Changes since the first record, relative to the squares they are made of.

        That is :math:`|Q_j(t) - Q_j(0)| / \sum_e B_{ej}^2 \theta_e(0)^2`, for the generators in
        ``conserved`` that move any weight but zeros.
        """
        kept = self.conserved & (self._mass > 0)
        return ((self.values - self._rows[0]).abs() / self._mass)[:, kept]

    def curve(self) -> Curve:
        """The drift in short, as :func:`symoptim.applications.drift.draw_drift` takes it."""
        drift = self.drift()
        if not drift.shape[1]:
            return Curve(list(self.steps), [0.0] * len(drift), [0.0] * len(drift))
        rows = [(float(row.median()), float(row.max())) for row in drift]
        return Curve(list(self.steps), [middle for middle, _ in rows], [most for _, most in rows])


def _mass(spec: SymmetrySpec, parameters: Mapping[str, Tensor]) -> Tensor:
    """For every generator the sum of squares of entries times squared exponents."""
    sums = [
        entry_sums(squares_of(parameters[name], name), terms)
        for name, terms in moving_terms(spec, parameters).items()
    ]
    return curvature_diagonal(at_identity(spec, sums))


def _read_but_not_trained(model: nn.Module, spec: SymmetrySpec, optimizers: list[Optimizer]) -> list[str]:
    """Tensors the loss may depend on, and that steps do not change; of any optimizer, if there is none."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    stepped = {id(parameter) for group in groups for parameter in group["params"]}
    trained = {
        name
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.requires_grad and (id(parameter) in stepped or not optimizers)
    }
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules(remove_duplicate=False))
    written = {
        f"{place}.{name}".removeprefix(".")
        for place, module in modules
        if isinstance(module, _NormBase) and module.training
        for name in ("running_mean", "running_var")
    }
    return [name for name in spec.tensors if name not in trained and name not in written]
