r"""Any gradient-driven optimizer, made invariant by a change of coordinates.

Let s be the norm of a filter w. In the coordinates :math:`q = w / s` the gradient is :math:`s g`, and
neither changes when the filter is rescaled (w -> a w makes g -> g/a and s -> a s). So hand q and s g to
any optimizer whose state comes from gradients alone, take its q', and set

.. math:: w' = w + s\, (q' - q) .

With SGD and no momentum this is exactly the scaled metric, :math:`w - r |w|^2 g`. With AdamW it is an
AdamW whose path does not depend on the scaling, decoupled weight decay included.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim import ASGD, LBFGS, Optimizer, SparseAdam
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError, ZeroFilterWarning
from symoptim.geometry.distributed import write
from symoptim.geometry.filters import norm
from symoptim.optim.base import GeometricSGD
from symoptim.optim.checkpoint import loading
from symoptim.optim.checks import (
    Group,
    check_gradients,
    check_parameters,
    check_rate,
    some,
    warn_user,
    zero_filters,
)
from symoptim.routing import axes_of

REFUSED: dict[type[Optimizer], str] = {
    LBFGS: "it compares weights of different steps, which are in different coordinates; take AdamW or SGD",
    ASGD: "it averages weights of different steps, which are in different coordinates; take AdamW or SGD",
    SparseAdam: "the norms of filters need dense gradients; take AdamW",
    GeometricSGD: "it has a geometry of its own; use it as it is",
}
"""Optimizers the chart cannot serve, and why."""


def invariant(optimizer_class: type[Optimizer], params: ParamsT, **options: Any) -> Optimizer:
    """Build an optimizer of that class whose path does not depend on how filters are scaled.

    The result *is* an ``optimizer_class`` (schedulers, ``state_dict``, hooks, ``foreach`` and ``fused``
    work as they do there); only its step is taken in other coordinates. Its state must come from
    gradients alone: SGD, Adam, AdamW, NAdam, RAdam, RMSprop, Adagrad, Adadelta, Adamax, Rprop, Adafactor
    and Muon do, and so must any optimizer of your own.

    Args:
        optimizer_class: class of the optimizer.
        params: groups of :func:`symoptim.param_groups`, as for :class:`symoptim.ScaledSGD`.
        **options: options of ``optimizer_class``.

    Returns:
        The optimizer.

    Raises:
        OptionError: the class keeps weights of earlier steps (L-BFGS, ASGD), or ``differentiable``.

    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = invariant(torch.optim.SGD, [w], lr=0.1)
    >>> w[0, 0].backward()
    >>> optimizer.step()
    >>> w.tolist()
    [[0.5, 4.0]]

    .. note:: Parameters are updated in their own precision, as ``optimizer_class`` does; there is no
        float32 master copy.
    """
    _require_servable(optimizer_class)
    check_rate(options.get("lr", 0.0))
    if options.get("differentiable"):
        raise OptionError("invariant() has no differentiable=True: its coordinates change in place")
    return in_chart(optimizer_class)(params, **options)


def _require_servable(optimizer_class: type[Optimizer]) -> None:
    """Refuse what is no optimizer, and optimizers the chart cannot serve, with the reason."""
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"invariant() takes a class such as torch.optim.AdamW, got {optimizer_class!r}")
    name = optimizer_class.__name__
    for refused, reason in {**REFUSED, Charted: "it is in the chart already"}.items():
        if issubclass(optimizer_class, refused):
            raise OptionError(f"invariant() cannot serve {name}: {reason}")
    closure = inspect.signature(optimizer_class.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise OptionError(
            f"invariant() cannot serve {name}: its step calls the closure itself, in coordinates the model "
            "does not have; use an optimizer driven by gradients alone, such as AdamW"
        )


class Charted(Optimizer):
    """Mixin that takes the step of the class after it in the coordinates q = w / s."""

    wrapped_class: ClassVar[type[Optimizer]]

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; its geometry is ``"rows"`` unless it says otherwise."""
        meaning = {"geometry": "rows", "axis": 0, "optimizer": type(self).__name__}
        super().add_param_group({**meaning, **param_group})
        group = self.param_groups[-1]
        try:
            check_rate(group["lr"])
            check_parameters(group)
            _warn_of_zero_filters(group)
        except Exception:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step of the wrapped optimizer in the chart.

        Args:
            closure: reevaluates the model and returns the loss.

        Returns:
            The loss of the closure, if there is one.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        check_gradients(self.param_groups)
        places = [place for group in self.param_groups for place in _places(group)]
        try:
            for place in places:
                place.enter()
            _unhooked_step(self.wrapped_class)(self)
        except BaseException:
            for place in places:
                place.parameter.copy_(place.weights)
            raise
        else:
            for place in places:
                moved = place.scale * (place.parameter - place.coordinates)
                write(place.parameter, place.weights + moved)
        finally:
            for place in places:
                place.parameter.grad = place.gradient
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; one of another optimizer or geometry is refused and changes nothing."""
        with loading(self):
            super().load_state_dict(state_dict)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle by the wrapped class: the class made for it has no name to import it by."""
        return _empty, (self.wrapped_class,), self.__getstate__()


class Place(NamedTuple):
    """Where a parameter is: its weights w and gradient g, its filters' scales s, its coordinates q."""

    parameter: Tensor
    weights: Tensor
    gradient: Tensor
    scale: Tensor
    coordinates: Tensor

    def enter(self) -> None:
        """Put the parameter into the chart; its own gradient is set aside, not written to."""
        write(self.parameter, self.coordinates)
        self.parameter.grad = torch.empty_like(self.gradient)
        write(self.parameter.grad, self.scale * self.gradient)


def _places(group: Group) -> Iterator[Place]:
    """Places of a group's parameters; plain ones keep their weights, but their gradients are set aside too.

    Some optimizers write to the gradients they are given (torch's SGD with foreach and nesterov does).
    """
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        weights = parameter.detach().clone()
        if group["geometry"] == "plain":
            scale = torch.ones((), dtype=weights.dtype, device=weights.device)
        else:
            scale = norm(weights, axes_of(group["geometry"], group["axis"], parameter.ndim))
        # A zero filter has q = 0 and s g = 0, and so stays where it is, as in the scaled metric.
        coordinates = weights / torch.where(scale == 0, 1, scale)
        yield Place(parameter, weights, parameter.grad, scale, coordinates)


def _warn_of_zero_filters(group: Group) -> None:
    if group["geometry"] == "plain":
        return
    for name, zero in zero_filters(group):
        warn_user(
            f"{name} has zero filters ({some(zero)}) along its {group['geometry']}; they have no scale and "
            "stay at zero: give them a start, or put the parameter into a 'plain' group",
            ZeroFilterWarning,
        )


@functools.cache
def in_chart(optimizer_class: type[Optimizer]) -> type[Optimizer]:
    """The class ``invariant`` builds: ``optimizer_class`` with its step in the chart."""
    name = f"Invariant{optimizer_class.__name__}"
    return type(name, (Charted, optimizer_class), {"wrapped_class": optimizer_class})


def _empty(optimizer_class: type[Optimizer]) -> Optimizer:
    """An instance to be filled by unpickling."""
    made = in_chart(optimizer_class)
    return made.__new__(made)


def _unhooked_step(optimizer_class: type[Optimizer]) -> Callable[[Optimizer], Any]:
    """The class's own step; torch wraps it to call the step hooks, which the chart's step does already."""
    step = optimizer_class.step
    return inspect.unwrap(step, stop=lambda f: not getattr(f, "hooked", False))
