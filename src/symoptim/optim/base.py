"""What the optimizers share: groups, closure, state and its saving. No formula is here."""

import sys
from collections.abc import Callable, Mapping
from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError
from symoptim.geometry.tensors import update_dtype
from symoptim.metric.factor_buffers import RowColumnFactors
from symoptim.optim.amp import LossScaling, loss_scaling, supports_loss_scaling
from symoptim.optim.checkpoint import loading
from symoptim.optim.clip import TRAINERS, Clipping, gradients_of, shorten
from symoptim.optim.functional import Factors, Job, device_rate, not_compiled, options_for, step_batch, write
from symoptim.optim.fused import FusedSteps, hyperparameters_of
from symoptim.optim.fused_support import require_kernels
from symoptim.optim.master_weights import State, make_state, require_same_shapes, restore_precision, state_of
from symoptim.optim.model_metric import ModelMetric
from symoptim.optim.tensor_snapshot import storages_of
from symoptim.optim.validation import (
    Group,
    check_gradients,
    check_last_group,
    check_options,
    check_parameters,
    completed,
    is_trained_matrix,
    labeled,
    loss_of,
    require_named_alike,
    require_no_model,
)
from symoptim.routing import Geometry, axes_of
from symoptim.updates.catalog import Update
from symoptim.updates.step import Rate, StepOptions

Batch = tuple[list[Job], Update, StepOptions, Group]
"""What :func:`.functional.step_batch` takes."""


class GeometricSGD(Clipping):
    """SGD whose update depends on the geometry of each parameter group.

    A subclass says which update each geometry gets, and which weights it refuses.

    Gradients are not written to, but by ``max_norm``, which scales them as ``clip_grad_norm_`` does.
    Parameters of less than 32 bits keep a float32 master copy in the state (``"master"``), and their momentum
    is float32 too.
    """

    updates: ClassVar[Mapping[Geometry, Update]]

    metric: ModelMetric | None = None
    """What multiplies gradients besides their geometry, if anything: the full metric of a model."""
    _own_options: Mapping[str, object] = {}
    """Options of groups that only a subclass has, with their defaults."""
    _constructing = False
    _fused: FusedSteps | None = None

    def __init__(
        self,
        params: ParamsT,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        *,
        max_norm: float | None = None,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Take what :class:`.sgd.ScaledSGD` takes."""
        self.set_max_norm(max_norm)
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
            **self._own_options,
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
            if is_trained_matrix(parameter):
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

    @not_compiled
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step.

        Args:
            closure: reevaluates the model and returns the loss.

        Returns:
            The loss of the closure, if there is one.
        """
        loss = None if closure is None else loss_of(closure)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            fused = self._fused
            if fused is None or not self._is_current(fused):
                fused = self._rebuilt()
            elif any(fused.fallback):
                check_gradients(self.param_groups)
            hyperparameters = hyperparameters_of(self.param_groups)
            scaling = loss_scaling(self) if hasattr(self, "found_inf") else None
            if self.metric is not None:
                self.metric.refresh(self.state)
            share = None if self.max_norm is None else self._clipping_share(self.max_norm)
            batches = self._fallback_batches(fused.fallback, scaling) if any(fused.fallback) else []
            if share is not None:  # only now: a step that is refused leaves gradients as they were
                self._shorten(batches, share)
            fused.step(hyperparameters, scaling)
            if batches and not (scaling and bool(scaling.found_inf)):
                for batch in batches:
                    step_batch(*batch)
        return loss

    def _is_current(self, fused: FusedSteps) -> bool:
        """Whether all that kernels read and write is where it was."""
        if not fused.is_current(self.param_groups, self.state):
            return False
        return self.metric is None or self.metric.is_current()

    def _rebuilt(self) -> FusedSteps:
        """Check all gradients, and sort parameters into what kernels step and what the pure functions do."""
        self._fused = None  # what cannot be made anew must not go on either
        self._check_step()
        factors: Mapping[Tensor, RowColumnFactors | None] = {}
        if self.metric is not None:
            factors = self.metric.allocate(self.param_groups)
        fused = FusedSteps(self.param_groups, self.state, self.updates, factors)
        if self.metric is not None:
            self.metric.watch_others(fused.stepped)
        self._fused = fused
        return fused

    def _check_step(self) -> None:
        """Refuse gradients that cannot be used, before anything is changed."""
        check_gradients(self.param_groups)
        if not TRAINERS.keys().isdisjoint(sys.modules):
            self._warn_of_trainer()

    def _shorten(self, batches: list[Batch], share: Tensor) -> None:
        """Clip gradients, and what batches have as copies of them."""
        shorten(gradients_of(self), share)
        jobs = [job for batch, *_ in batches for job in batch]
        shorten(((p, g) for p, g, *_ in jobs if g is not p.grad), share)

    def _fallback_batches(self, fallback: list[list[Tensor]], scaling: LossScaling | None) -> list[Batch]:
        """All that the pure steps of parameters need that no kernel takes; nothing is changed yet."""
        batches: list[Batch] = []
        factors: Factors = {} if self.metric is None else self.metric.factors(self.state, 2.0)
        written = storages_of(chain.from_iterable(group["params"] for group in self.param_groups))
        for group, parameters in zip(self.param_groups, fallback, strict=True):
            by_device: dict[torch.device, list[Job]] = {}
            for parameter in parameters:
                if parameter.grad is not None:
                    over = axes_of(group["geometry"], group["axis"], parameter.ndim)
                    gradient = parameter.grad if scaling is None else scaling.undone(parameter.grad)
                    if not written.isdisjoint(storages_of([gradient])):
                        gradient = gradient.clone()  # or other steps would change it
                    state = state_of(parameter, self.state, momentum=bool(group["momentum"]))
                    job = Job(parameter, gradient, state, over, factors.get(parameter, ()))
                    by_device.setdefault(parameter.device, []).append(job)
            for device, jobs in by_device.items():
                batches.append((jobs, self.updates[group["geometry"]], options_for(group, device), group))
        return batches

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return supports_loss_scaling(self.param_groups)

    def load_state_dict(self, state_dict: State) -> None:
        """Load a saved state; one of another optimizer or geometry is refused and changes nothing."""
        self._fused = None
        check, finish = self._check_saved, self._finish_loading
        with loading(self, check=check, finish=finish, weights={"master"}):
            super().load_state_dict(state_dict)

    def _check_saved(self, saved: State) -> None:
        require_same_shapes(self, saved)
        for group, other in zip(self.param_groups, saved["param_groups"], strict=False):
            self._check_options(other)
            require_kernels({**other, "params": group["params"]})

    def _finish_loading(self, saved: State) -> None:
        restore_precision(self, saved)
        for group in self.param_groups:
            if group["capturable"]:
                group["lr"] = device_rate(group)

    def __setstate__(self, state: State) -> None:
        super().__setstate__(state)
        self._fused = None
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
