"""``invariant``: the public way into the chart, and the optimizers it has to turn away."""

import inspect
from typing import Any

from torch import nn
from torch.optim import ASGD, LBFGS, Optimizer, SparseAdam
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError
from symoptim.metric.gauge import Gauge, Pooled
from symoptim.optim.base import GeometricSGD
from symoptim.optim.bound import BoundMetric
from symoptim.optim.chart import Charted, in_chart
from symoptim.optim.checks import check_rate, shown
from symoptim.optim.clip import require_length
from symoptim.optim.full_chart import FullyCharted
from symoptim.optim.in_full_metric import require_trainable
from symoptim.symmetry.spec import SymmetrySpec

REFUSED: dict[type[Optimizer], str] = {
    LBFGS: "it compares weights of different steps, which are in different coordinates; take AdamW or SGD",
    ASGD: "it averages weights of different steps, which are in different coordinates; take AdamW or SGD",
    SparseAdam: "the norms of filters need dense gradients; take AdamW",
    GeometricSGD: "it has a geometry of its own; use it as it is",
    Charted: "it is in the chart already",
}
"""Optimizers the chart cannot serve, and why."""


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
    if spec is None and not isinstance(params, nn.Module) and groups is None and gauge == Pooled():
        return _clipping(in_chart(optimizer_class, Charted)(params, **options), max_norm)
    if spec is None or not isinstance(params, nn.Module):
        raise OptionError(
            "give a model together with its symmetries, as in invariant(AdamW, model, spec=discover(model, "
            "example_inputs)), with groups=[...] for groups of its parameters and gauge=..., if you like; or "
            "groups of parameters alone"
        )
    bound = BoundMetric(params, spec, gauge)
    parameters = require_trainable(params) if groups is None else groups
    return _clipping(in_chart(optimizer_class, FullyCharted)(bound, parameters, **options), max_norm)


def _clipping(optimizer: Charted, max_norm: float | None) -> Charted:
    optimizer.set_max_norm(max_norm)
    return optimizer


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
