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
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from symoptim.geometry.distributed import replicated_like
from symoptim.geometry.filters import update_dtype
from symoptim.optim.apply import Factors, filter_norms
from symoptim.optim.checkpoint import loading
from symoptim.optim.checks import (
    Group,
    check_gradients,
    check_last_group,
    check_parameters,
    check_rate,
    completed,
    loss_of,
    require_named_alike,
    warn_of_zero_filters,
)
from symoptim.optim.clip import Clipping, gradients_of, shorten
from symoptim.optim.layout import write
from symoptim.optim.told import told


class Charted(Clipping):
    """Mixin that takes the step of the class after it in the coordinates q = w / s."""

    wrapped_class: ClassVar[type[Optimizer]]
    chart: ClassVar["type[Charted]"]

    @property
    def _made_by(self) -> str:
        return "symoptim.invariant(...)"

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; its geometry is ``"rows"`` unless it says otherwise."""
        group = {"geometry": "rows", "axis": 0, **completed(param_group), "optimizer": type(self).__name__}
        require_named_alike(self.param_groups, group)
        super().add_param_group(group)
        check_last_group(self.param_groups, self._check)

    def _check(self, group: Group) -> None:
        """Refuse a group the chart cannot serve, and warn of filters that it will leave at zero."""
        check_rate(group.get("lr", 0.0))
        check_parameters(group)
        warn_of_zero_filters(group)

    @told
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step of the wrapped optimizer in the chart.

        Should that step fail, weights and gradients are brought back; its state is its own affair.

        Args:
            closure: reevaluates the model and returns the loss.

        Returns:
            The loss of the closure, if there is one.
        """
        loss = loss_of(closure)
        check_gradients(self.param_groups)
        self._warn_of_trainer()
        gradients, share = gradients_of(self), self._share()
        scales = self.scales()
        places = [Place.of(parameter, scales[parameter]) for parameter, _ in gradients if parameter in scales]
        try:
            for parameter, gradient in gradients:
                # Some steps write to gradients they are given: torch's SGD with foreach and nesterov does.
                parameter.grad = gradient.clone()
            if share is not None:
                shorten(gradients_of(self), share)
            for place in places:
                place.enter()
            _unhooked_step(self.wrapped_class)(self)
            for place in places:
                place.leave()
        except BaseException:
            for place in places:
                place.parameter.copy_(place.weights)
            raise
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
        if share is not None:  # only now: a step that is refused leaves gradients as they were
            shorten(gradients, share)
        return loss

    def scales(self) -> Factors:
        """Scales s of the parameters that are in the chart and have a gradient; plain ones are not in it."""
        return filter_norms(self.param_groups)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; one of another optimizer or geometry is refused and changes nothing."""
        with loading(self, check=self._check_saved, finish=self._finish_loading):
            super().load_state_dict(state_dict)

    def _check_saved(self, saved: dict[str, Any]) -> None:
        """Refuse a state this optimizer cannot take over."""
        for group in saved["param_groups"]:
            check_rate(group.get("lr", 0.0))

    def _finish_loading(self, saved: dict[str, Any]) -> None:
        """Take over what else a loaded state has; nothing here."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle by the wrapped class: the class made for it has no name to import it by."""
        return _empty, (self.wrapped_class, self.chart), self.__getstate__()


class Place(NamedTuple):
    """Where a parameter is: its weights w, the scales s of its filters, its coordinates q = w / s.

    All are in the precision of updates (squares of float16 overflow early), rounded where they are used.
    """

    parameter: Tensor
    weights: Tensor
    scale: Tensor
    coordinates: Tensor

    @staticmethod
    def of(parameter: Tensor, scales: tuple[Tensor, ...]) -> "Place":
        """The place of a parameter whose weights have that scale, a product of factors."""
        weights = parameter.detach().to(update_dtype(parameter.dtype), copy=True)
        scale = functools.reduce(torch.mul, [replicated_like(factor, weights) for factor in scales])
        # A zero filter has q = 0 and s g = 0, and so stays where it is, as in the scaled metric.
        coordinates = weights / torch.where(scale == 0, 1, scale)
        # Rounded as the parameter will hold them, so that a step that moves nothing moves nothing.
        rounded = coordinates.to(parameter.dtype).to(weights.dtype)
        return Place(parameter, weights, scale, rounded)

    def enter(self) -> None:
        """Put the parameter, and the copy of its gradient it has by now, into the chart."""
        gradient = self.parameter.grad
        assert gradient is not None
        write(self.parameter, self.coordinates)
        write(gradient, self.scale * gradient)

    def leave(self) -> None:
        """Bring the parameter back from where the step has moved its coordinates."""
        moved = self.parameter.to(self.weights.dtype) - self.coordinates
        write(self.parameter, self.weights + self.scale * moved)


@functools.cache
def in_chart(optimizer_class: type[Optimizer], chart: type[Charted]) -> Any:
    """The class ``invariant`` builds: ``optimizer_class`` with its step in that chart."""
    name = f"Invariant{optimizer_class.__name__}"
    return type(name, (chart, optimizer_class), {"wrapped_class": optimizer_class, "chart": chart})


def _empty(optimizer_class: type[Optimizer], chart: type[Charted]) -> Optimizer:
    """An instance to be filled by unpickling."""
    made: Any = in_chart(optimizer_class, chart)
    return made.__new__(made)


def _unhooked_step(optimizer_class: type[Optimizer]) -> Callable[[Optimizer], Any]:
    """The class's own step; torch wraps it to call the step hooks, which the chart's step does already."""
    step = optimizer_class.step
    return inspect.unwrap(step, stop=lambda f: not getattr(f, "hooked", False))
