"""What the optimizers share: groups, closure, state and its saving. No formula is here."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError
from symoptim.geometry.filters import update_dtype
from symoptim.kernels.numbers import numbers_of
from symoptim.metric.sides import Sides
from symoptim.optim.apply import Factors, Job, apply, device_rate, make_state, options_for, state_of
from symoptim.optim.checkpoint import loading
from symoptim.optim.checks import (
    Group,
    check_gradients,
    check_last_group,
    check_options,
    check_parameters,
    completed,
    labeled,
    loss_of,
    require_named_alike,
    require_no_model,
)
from symoptim.optim.clip import Clipping, gradients_of, shorten
from symoptim.optim.fused import FusedSteps
from symoptim.optim.fusible import require_kernels
from symoptim.optim.layout import write
from symoptim.optim.places import storages_of
from symoptim.optim.precision import require_same_shapes, restore_precision
from symoptim.optim.scaling import Scaling, scaling_of, takes_scaling
from symoptim.optim.told import told
from symoptim.routing import Geometry, axes_of
from symoptim.updates.catalog import Update
from symoptim.updates.step import Rate, StepOptions

Batch = tuple[list[Job], Update, StepOptions, Group]
"""What :func:`.apply.apply` takes."""


class GeometricSGD(Clipping):
    """SGD whose update depends on the geometry of each parameter group.

    A subclass says which update each geometry gets, and which weights it refuses.

    Gradients are not written to, but by ``max_norm``, which scales them as ``clip_grad_norm_`` does.
    Parameters of less than 32 bits keep a float32 master copy in the state (``"master"``), and their momentum
    is float32 too.
    """

    updates: ClassVar[Mapping[Geometry, Update]]

    _constructing = False
    _fused: FusedSteps | None = None

    def __init__(
        self,
        params: ParamsT,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        *,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        **own: Any,
    ) -> None:
        """Take what :class:`.sgd.ScaledSGD` takes, and ``own`` options of the subclass."""
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
            "differentiable": differentiable,
            "geometry": "rows",
            "axis": 0,
            **own,
        }
        require_no_model(params, type(self).__name__)
        # Weights are touched only once every group has been accepted.
        self._constructing = True
        super().__init__(params, defaults)
        self._constructing = False
        self._start_all()

    def _start_all(self) -> None:
        """Bring the weights of all groups to where the update can begin, once all were accepted."""
        for group in self.param_groups:
            self._start(group)

    def _check_options(self, group: Group) -> None:
        """Refuse options this optimizer cannot serve."""
        check_options(group)

    def _check(self, group: Group) -> None:
        """Refuse a group this optimizer cannot serve."""
        self._check_options(group)
        check_parameters(group)
        require_kernels(group)
        if group["differentiable"]:
            if self.max_norm is not None:
                raise OptionError(
                    f"max_norm={self.max_norm!r} and differentiable=True cannot be combined: autograd does "
                    "not see gradients that are shortened in place. Leave max_norm out, and clip by "
                    "operations of your own"
                )
            for name, parameter in labeled(group):
                if parameter.dtype != update_dtype(parameter.dtype):
                    raise OptionError(
                        f"{name} has dtype {parameter.dtype}, which is updated through a float32 copy that "
                        "autograd cannot follow; differentiable=True needs float32 or float64"
                    )

    def _start(self, group: Group) -> None:
        """Bring the weights of an accepted group to where the update can begin."""
        update = self.updates[group["geometry"]]
        for parameter in group["params"]:
            if parameter.requires_grad and not parameter.is_meta and parameter.ndim > 1:
                over = axes_of(group["geometry"], group["axis"], parameter.ndim)
                # A differentiable step is a function of the weights as they were before they were normalized.
                with torch.set_grad_enabled(group["differentiable"] and not parameter.is_leaf):
                    started = update.start(parameter.clone() if torch.is_grad_enabled() else parameter, over)
                    if started is not parameter:
                        write(parameter, started)
        if group["capturable"]:
            group["lr"] = device_rate(group)
            momentum = bool(group["momentum"])
            for parameter in group["params"]:
                make_state(parameter, state_of(parameter, self.state, momentum=momentum), momentum=momentum)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; one that is refused leaves the optimizer and all weights as they were."""
        # A copy: torch writes the defaults into the group, and the caller may build a second optimizer of it.
        maker = next(kind.__name__ for kind in type(self).__mro__ if "updates" in vars(kind))
        group = {**completed(param_group), "optimizer": maker}
        require_named_alike(self.param_groups, group)
        super().add_param_group(group)
        check_last_group(self.param_groups, self._check)
        if not self._constructing:
            self._start(self.param_groups[-1])

    @told
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step.

        Args:
            closure: reevaluates the model and returns the loss.

        Returns:
            The loss of the closure, if there is one.
        """
        loss = loss_of(closure)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            fused = self._current_fused()
            metric, scaling = self._metric(fused), scaling_of(self)
            share = self._share()
            left = self._prepared(fused.left, metric, scaling)
            if share is not None:  # only now: a step that is refused leaves gradients as they were
                self._shorten(left, share)
            fused.step(scaling)
            if left and not (scaling and bool(scaling.found_inf)):
                for batch in left:
                    apply(*batch)
        return loss

    def _shorten(self, left: list[Batch], share: Tensor) -> None:
        """Clip gradients, and what steps have as copies of them."""
        shorten(gradients_of(self), share)
        jobs = [job for batch, *_ in left for job in batch]
        shorten(((p, g) for p, g, *_ in jobs if g is not p.grad), share)

    def _current_fused(self) -> FusedSteps:
        """What kernels step, as things are now."""
        if self._fused is None or not self._still_fits(self._fused):
            self._fused = None  # what cannot be made anew must not go on either
            check_gradients(self.param_groups)
            self._check_first()
            self._warn_of_trainer()
            self._fused = FusedSteps(self, self.updates, self._sides())
        elif any(self._fused.left):
            check_gradients(self.param_groups)
        return self._fused

    def _check_first(self) -> None:
        pass  # for optimizers that change weights when they are made

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return takes_scaling(self.param_groups)

    def _still_fits(self, fused: FusedSteps) -> bool:
        return fused.fits(self.param_groups, self.state)

    def _sides(self) -> Mapping[Tensor, Sides | None]:
        return {}  # parameters with a metric, and where kernels find its factors

    def _metric(self, fused: FusedSteps) -> Factors:  # noqa: ARG002 - for metrics to look at
        return {}  # factors that gradients are multiplied by before their update, by parameter

    def _prepared(self, left: list[list[Tensor]], metric: Factors, scaling: Scaling | None) -> list[Batch]:
        """All that the pure steps of parameters need that no kernel takes; nothing is changed yet."""
        batches: list[Batch] = []
        written = storages_of(chain.from_iterable(g["params"] for g in self.param_groups if any(left)))
        for group, parameters in zip(self.param_groups, left, strict=True):
            numbers_of(group)  # raises where an option was set that is no number
            by_device: dict[torch.device, list[Job]] = {}
            for parameter in parameters:
                if parameter.grad is not None:
                    over = axes_of(group["geometry"], group["axis"], parameter.ndim)
                    gradient = parameter.grad if scaling is None else scaling.undone(parameter.grad)
                    if not written.isdisjoint(storages_of([gradient])):
                        gradient = gradient.clone()  # or other steps would change it
                    state = state_of(parameter, self.state, momentum=bool(group["momentum"]))
                    job = Job(parameter, gradient, state, over, metric.get(parameter, ()))
                    by_device.setdefault(parameter.device, []).append(job)
            for device, jobs in by_device.items():
                batches.append((jobs, self.updates[group["geometry"]], options_for(group, device), group))
        return batches

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; one of another optimizer or geometry is refused and changes nothing."""
        self._fused = None
        check, finish = self._check_saved, self._finish_loading
        with loading(self, check=check, finish=finish, weights={"master"}):
            super().load_state_dict(state_dict)

    def _check_saved(self, saved: dict[str, Any]) -> None:
        require_same_shapes(self, saved)
        for group, other in zip(self.param_groups, saved["param_groups"], strict=False):
            self._check_options(other)
            require_kernels({**other, "params": group["params"]})

    def _finish_loading(self, saved: dict[str, Any]) -> None:
        restore_precision(self, saved)
        for group in self.param_groups:
            if group["capturable"]:
                group["lr"] = device_rate(group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._fused = None
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
