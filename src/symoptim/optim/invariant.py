r"""Any gradient-driven optimizer, made invariant by a change of coordinates.

Let s be the norm of a filter w, or the scale that the full metric of a model gives every single weight. In
the coordinates :math:`q = w / s` the gradient is :math:`s g`, and neither changes when the filter is rescaled
(w -> a w makes g -> g/a and s -> a s). So hand q and s g to any optimizer whose state comes from gradients
alone, take its q', and set

.. math:: w' = w + s\, (q' - q) .

With SGD and no momentum this is exactly the scaled metric, :math:`w - r |w|^2 g`, or the full one
(:class:`.FullMetricSGD`). With AdamW it is an AdamW whose path does not depend on the scaling, decoupled
weight decay included.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import ASGD, LBFGS, Optimizer, SparseAdam
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError
from symoptim.geometry.tensors import replicated_like, update_dtype
from symoptim.metric.gauge import Gauge, Pooled
from symoptim.optim.base import GeometricSGD
from symoptim.optim.checkpoint import loading
from symoptim.optim.clip import Clipping, gradients_of, require_length, shorten
from symoptim.optim.full_metric_sgd import InModelMetric, require_trainable
from symoptim.optim.functional import Factors, filter_norms, not_compiled, write
from symoptim.optim.master_weights import State
from symoptim.optim.model_metric import ModelMetric
from symoptim.optim.validation import (
    Group,
    check_gradients,
    check_last_group,
    check_parameters,
    check_rate,
    completed,
    loss_of,
    require_named_alike,
    shown,
    warn_of_zero_filters,
)
from symoptim.symmetry.spec import SymmetrySpec


def invariant(
    optimizer_class: type[Optimizer],
    params: ParamsT | nn.Module,
    *,
    spec: SymmetrySpec | None = None,
    gauge: Gauge = Pooled(),  # noqa: B008 - frozen
    groups: ParamsT | None = None,
    max_norm: float | None = None,
    **options: Any,
) -> Optimizer:
    """Build an optimizer of that class whose path does not depend on how a network is scaled.

    With groups of parameters it does not depend on the scale of their filters; with a model and its
    symmetries, on none of these.

    The result *is* an ``optimizer_class`` (schedulers, ``state_dict``, hooks, ``foreach`` and ``fused``
    work as they do there); only its step is taken in other coordinates. Its state must come from
    gradients alone: SGD, Adam, AdamW, NAdam, RAdam, RMSprop, Adagrad, Adadelta, Adamax, Rprop, Adafactor
    and Muon do, and so must any optimizer of your own.

    Args:
        optimizer_class: class of the optimizer.
        params: groups of :func:`symoptim.param_groups`, as for :class:`symoptim.ScaledSGD`; or a model,
            whose parameters that require gradients are all trained.
        spec: symmetries of that model, of :func:`symoptim.discover`, in the mode it is trained in; a step in
            another mode warns, and so do parameters that thaw and are in no group.
        gauge: with a model, how sizes of units become scales of weights (:mod:`symoptim.metric.gauge`).
        groups: with a model, parameters of it or groups with options of their own, if not all are to be
            trained alike.
        max_norm: the longest gradient there may be: every step begins with
            :func:`symoptim.clip_invariant_norm_`. None clips nothing. Switch the clipping of trainers off
            (``TrainingArguments(max_grad_norm=0)``, Lightning's ``Trainer(gradient_clip_val=None)``).
        **options: options of ``optimizer_class``.

    Returns:
        The optimizer.

    Raises:
        OptionError: the class keeps weights of earlier steps (L-BFGS, ASGD), or ``differentiable``; a model
            without its symmetries, or symmetries without the model.

    >>> import torch
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
    require_length(max_norm)
    if options.get("differentiable"):
        raise OptionError("invariant() has no differentiable=True: its coordinates change in place")
    optimizer: Reparametrized
    if spec is None and not isinstance(params, nn.Module) and groups is None and gauge == Pooled():
        optimizer = reparametrize(optimizer_class, Reparametrized)(params, **options)
    elif spec is None or not isinstance(params, nn.Module):
        raise OptionError(
            "give a model together with its symmetries, as in invariant(AdamW, model, spec=discover(model, "
            "example_inputs)), with groups=[...] for groups of its parameters and gauge=..., if you like; or "
            "groups of parameters alone"
        )
    else:
        metric = ModelMetric(params, spec, gauge)
        parameters = require_trainable(params) if groups is None else groups
        made = reparametrize(optimizer_class, ReparametrizedInModelMetric)
        optimizer = made(metric, parameters, **options)
    optimizer.set_max_norm(max_norm)
    return optimizer


class Reparametrized(Clipping):
    """Mixin that takes the step of the class after it in the coordinates q = w / s."""

    wrapped_class: ClassVar[type[Optimizer]]
    mixin: ClassVar["type[Reparametrized]"]

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

    @not_compiled
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step of the wrapped optimizer in the chart.

        Should that step fail, weights and gradients are brought back; its state is its own affair.

        Args:
            closure: reevaluates the model and returns the loss.

        Returns:
            The loss of the closure, if there is one.
        """
        loss = None if closure is None else loss_of(closure)
        check_gradients(self.param_groups)
        self._warn_of_trainer()
        gradients = gradients_of(self)
        share = None if self.max_norm is None else self._clipping_share(self.max_norm)
        scales = self.scales()
        points = [Point.of(parameter, scales[parameter]) for parameter, _ in gradients if parameter in scales]
        try:
            for parameter, gradient in gradients:
                # Some steps write to gradients they are given: torch's SGD with foreach and nesterov does.
                parameter.grad = gradient.clone()
            if share is not None:
                shorten(gradients_of(self), share)
            for point in points:
                point.enter()
            _unhooked_step(self.wrapped_class)(self)
            for point in points:
                point.leave()
        except BaseException:
            for point in points:
                point.parameter.copy_(point.weights)
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

    def load_state_dict(self, state_dict: State) -> None:
        """Load a saved state; one of another optimizer or geometry is refused and changes nothing."""
        with loading(self, check=self._check_saved, finish=self._finish_loading):
            super().load_state_dict(state_dict)

    def _check_saved(self, saved: State) -> None:
        """Refuse a state this optimizer cannot take over."""
        for group in saved["param_groups"]:
            check_rate(group.get("lr", 0.0))

    def _finish_loading(self, saved: State) -> None:
        """Take over what else a loaded state has; nothing here."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle by the wrapped class: the class made for it has no name to import it by."""
        return _empty, (self.wrapped_class, self.mixin), self.__getstate__()


class Point(NamedTuple):
    """Where a parameter is: its weights w, the scales s of its filters, its coordinates q = w / s.

    All are in the precision of updates (squares of float16 overflow early), rounded where they are used.
    """

    parameter: Tensor
    weights: Tensor
    scale: Tensor
    coordinates: Tensor

    @staticmethod
    def of(parameter: Tensor, scales: tuple[Tensor, ...]) -> "Point":
        """The point of a parameter whose weights have that scale, a product of factors."""
        weights = parameter.detach().to(update_dtype(parameter.dtype), copy=True)
        scale = functools.reduce(torch.mul, [replicated_like(factor, weights) for factor in scales])
        # A zero filter has q = 0 and s g = 0, and so stays where it is, as in the scaled metric.
        coordinates = weights / torch.where(scale == 0, 1, scale)
        # Rounded as the parameter will hold them, so that a step that moves nothing moves nothing.
        rounded = coordinates.to(parameter.dtype).to(weights.dtype)
        return Point(parameter, weights, scale, rounded)

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


class ReparametrizedInModelMetric(InModelMetric, Reparametrized):
    """Mixin that takes the step of the class after it in the coordinates q = w / s, s of the full metric."""

    state_exponents: ClassVar[Mapping[str, int]] = {}
    """Powers of the weight's scale by which state moves: none does, it is in coordinates that do not."""

    def __init__(self, metric: ModelMetric, params: ParamsT, **options: Any) -> None:
        """Take the metric, and the parameters and options of the wrapped class."""
        self.metric = metric
        super().__init__(params, **options)


@functools.cache
def reparametrize(optimizer_class: type[Optimizer], mixin: type[Reparametrized]) -> Any:
    """The class ``invariant`` builds: ``optimizer_class`` with its step in that chart."""
    name = f"Invariant{optimizer_class.__name__}"
    return type(name, (mixin, optimizer_class), {"wrapped_class": optimizer_class, "mixin": mixin})


def _empty(optimizer_class: type[Optimizer], mixin: type[Reparametrized]) -> Optimizer:
    """An instance to be filled by unpickling."""
    made: Any = reparametrize(optimizer_class, mixin)
    return made.__new__(made)


def _unhooked_step(optimizer_class: type[Optimizer]) -> Callable[[Optimizer], Any]:
    """The class's own step; torch wraps it to call the step hooks, which the chart's step does already."""
    step = optimizer_class.step
    return inspect.unwrap(step, stop=lambda f: not getattr(f, "hooked", False))


REFUSED: dict[type[Optimizer], str] = {
    LBFGS: "it compares weights of different steps, which are in different coordinates; take AdamW or SGD",
    ASGD: "it averages weights of different steps, which are in different coordinates; take AdamW or SGD",
    SparseAdam: "the norms of filters need dense gradients; take AdamW",
    GeometricSGD: "it has a geometry of its own; use it as it is",
    Reparametrized: "it is in the chart already",
}
"""Optimizers the chart cannot serve, and why."""


def _require_servable(optimizer_class: type[Optimizer]) -> None:
    """Refuse what is no optimizer, and optimizers the chart cannot serve, with the reason."""
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"invariant() takes a class such as torch.optim.AdamW, got {shown(optimizer_class)}: write "
            "invariant(torch.optim.AdamW, params, lr=...)"
        )
    name = optimizer_class.__name__
    for refused, reason in REFUSED.items():
        if issubclass(optimizer_class, refused):
            raise OptionError(f"invariant() cannot serve {name}: {reason}")
    closure = inspect.signature(optimizer_class.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise OptionError(
            f"invariant() cannot serve {name}: its step calls the closure itself, in coordinates the model "
            "does not have; use an optimizer driven by gradients alone, such as AdamW"
        )
