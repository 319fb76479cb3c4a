"""``ScaledSGD`` (SM) and ``UnitNormSGD`` (UN): signatures and what they promise."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from symoptim.errors import GeometryWarning, OptionError, ZeroFilterError
from symoptim.geometry.unit_norm import NOTED
from symoptim.optim.base import GeometricSGD
from symoptim.optim.functional import Factors, filter_norms
from symoptim.optim.master_weights import State
from symoptim.optim.param_groups import ParameterGroups
from symoptim.optim.unit_rows import (
    GaugeStart,
    changes_of_norms,
    gauge_start,
    require_unit_norm_in_parts,
)
from symoptim.optim.validation import (
    Group,
    completed,
    filters_without_direction,
    first_few,
    warn_of_zero_filters,
    warn_user,
)
from symoptim.routing import Geometry
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update
from symoptim.updates.step import Rate


class ScaledSGD(GeometricSGD):
    r"""SGD in the scaled metric (SM): each filter's gradient times the filter's own squared norm.

    .. math:: w \leftarrow w - r\, |w|^2 g

    for every row of a ``rows`` group and every column of a ``columns`` group; ``plain`` groups take plain
    SGD. The loss curve is the same from every rescaling of the weights that the paper names
    (arXiv:1511.01754, eqs. 1-3, 7 and Table 1), with momentum and weight decay too.

    A zero filter stays where it is; adding one warns (:class:`symoptim.errors.ZeroFilterWarning`).

    Clip gradients by ``max_norm`` or :func:`symoptim.clip_invariant_norm_`:
    ``torch.nn.utils.clip_grad_norm_`` brings the scaling back in. Trainers call it, and a warning says so for
    those of Hugging Face and Lightning. Switch that off:
    ``TrainingArguments(max_grad_norm=0)``, ``Trainer(gradient_clip_val=None)``.

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = ScaledSGD([w], lr=0.1)
    >>> w[0, 0].backward()
    >>> optimizer.step()
    >>> w.tolist()
    [[0.5, 4.0]]

    .. note:: Biases are not in the paper. A plain bias does not move with its row, so a network with
        biases in its rescaled layers is not trained invariantly; batch normalization right after the
        layer makes its bias irrelevant, or leave the bias out.
    """

    updates: ClassVar[Mapping[Geometry, Update]] = {"rows": SCALED, "columns": SCALED, "plain": PLAIN}

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
        """Take parameters, or groups of them, and the options of a step.

        Args:
            params: groups of :func:`symoptim.param_groups`, or any parameters or groups ``torch.optim``
                takes; a group's ``"geometry"`` is ``"rows"`` (the default), ``"columns"`` or ``"plain"``,
                its ``"axis"`` the axis that counts outputs: 0, or 1 for transposed convolutions.
            lr: rate, a number or a 1-element Tensor.
            momentum: momentum factor; the buffer lives in update space. The first step with momentum is
                the step without (with ``nesterov``, 1 + momentum times it, as in ``torch.optim.SGD``).
            max_norm: the longest gradient there may be: every step begins with
                :func:`symoptim.clip_invariant_norm_`. None clips nothing.
            nesterov: look ahead along the momentum.
            weight_decay: decoupled decay, ``w (1 - lr weight_decay)``.
            maximize: ascend instead of descend.
            foreach: step all parameters of one shape together; by default on accelerators only.
            fused: step by kernels that read and write every parameter once; by default wherever there are
                some and ``foreach`` is None. True raises where there are none, False never uses any.
            capturable: make the state at once and keep the rate as a tensor beside the parameters, so that a
                CUDA graph can be captured at any time and follows a scheduler.
            differentiable: let autograd run through the step (float32 and float64, not with ``foreach``).
        """
        super().__init__(
            params,
            lr,
            momentum,
            max_norm=max_norm,
            nesterov=nesterov,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
            differentiable=differentiable,
        )

    def _check(self, group: Group) -> None:
        super()._check(group)
        warn_of_zero_filters(group)

    def scales(self) -> Factors:
        """Norms of the filters of all parameters that have a gradient; plain ones have none."""
        return filter_norms(self.param_groups)


class UnitNormSGD(GeometricSGD):
    r"""SGD with filters on the unit sphere (UN): project the gradient, step, divide by the norm.

    .. math::
        v &= g - \langle g, w \rangle w \\
        w &\leftarrow (w - r v) / |w - r v|

    for every row of a ``rows`` group; ``columns`` and ``plain`` groups take plain SGD, as in the paper
    (arXiv:1511.01754, eq. 9 and Table 1). Before it is used, momentum is carried to the current point by
    projection.

    Rows that are not of unit norm are normalized when they are added (frozen ones, and those changed from
    outside, before they are next stepped). What that does to the network depends on what is known of it:

    - Groups of ``symoptim.param_groups(model, example_inputs=...)`` know the symmetries of the model. Rows
      whose norm is gauge are normalized, other weights of the model absorb their scale, and its outputs stay
      what they were. Other rows that are not of unit norm are left as they are and take plain steps; a
      :class:`symoptim.errors.GeometryWarning` names them.
    - Rows in other groups are divided by their norms, which changes outputs unless a normalization layer
      follows; a :class:`symoptim.errors.GeometryWarning` names them, unless ``normalize=True`` says that this
      is meant.

    Rows already of unit norm, as :func:`symoptim.balance_` makes them, stay bit-identical. A zero row is
    refused; so is weight decay on rows, which the normalization would undo. Gradients may be clipped by
    ``max_norm`` or by ``torch.nn.utils.clip_grad_norm_``, as trainers do: at unit norm there is no scale that
    it could bring in, and both are the same.

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = UnitNormSGD([w], lr=0.1, normalize=True)
    >>> w.tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

    updates: ClassVar[Mapping[Geometry, Update]] = {"rows": UNIT_NORM, "columns": PLAIN, "plain": PLAIN}

    _gauge_start: GaugeStart | None = None
    _unstepped: Mapping[Tensor, int | None] = {}
    """Weights not stepped yet: their version once they had unit norm, None for those frozen till now."""

    def __init__(
        self,
        params: ParamsT,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        *,
        normalize: bool | None = None,
        max_norm: float | None = None,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Take parameters, or groups of them, and the options of a step.

        Args:
            params: groups of :func:`symoptim.param_groups`, or any parameters or groups ``torch.optim``
                takes; a group's ``"geometry"`` is ``"rows"`` (the default), ``"columns"`` or ``"plain"``,
                its ``"axis"`` the axis that counts outputs: 0, or 1 for transposed convolutions.
            lr: rate, a number or a 1-element Tensor.
            momentum: momentum factor; the buffer lives in update space. The first step with momentum is
                the step without (with ``nesterov``, 1 + momentum times it, as in ``torch.optim.SGD``).
            normalize: what to do with rows that are not of unit norm. None: without symmetries they are
                normalized, with a warning; with symmetries those whose norm is gauge are, and others left
                plain. True: all are normalized. False: they are refused. A group may have its own.
            max_norm: the longest gradient there may be: every step begins with
                :func:`symoptim.clip_invariant_norm_`, which is torch's ``clip_grad_norm_`` here. None clips
                nothing.
            nesterov: look ahead along the momentum.
            weight_decay: decoupled decay, ``w (1 - lr weight_decay)``; 0 in groups of rows.
            maximize: ascend instead of descend.
            foreach: step all parameters of one shape together; by default on accelerators only.
            fused: step by kernels that read and write every parameter once; by default wherever there are
                some and ``foreach`` is None. True raises where there are none, False never uses any.
            capturable: make the state at once and keep the rate as a tensor beside the parameters, so that a
                CUDA graph can be captured at any time and follows a scheduler.
            differentiable: let autograd run through the step, and through the normalization (float32 and
                float64, not with ``foreach``).
        """
        if isinstance(params, ParameterGroups) and params.model is not None and params.spec is not None:
            self._gauge_start = self._known_start(params, params.model, params.spec, normalize)
            params = params if self._gauge_start is None else self._gauge_start.groups
        self._own_options = {"normalize": normalize}
        super().__init__(
            params,
            lr,
            momentum,
            max_norm=max_norm,
            nesterov=nesterov,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
            differentiable=differentiable,
        )

    def _check_options(self, group: Group) -> None:
        super()._check_options(group)
        if group["geometry"] == "rows" and group["weight_decay"]:
            raise OptionError(
                f"weight_decay={group['weight_decay']} has no effect on unit-norm rows, the normalization "
                "undoes it: set it to 0 in 'rows' groups and keep it in the others"
            )
        if not isinstance(group["normalize"], bool | None):
            raise OptionError(f"normalize must be True, False or None, got {group['normalize']!r}")

    def _check(self, group: Group) -> None:
        super()._check(group)
        if group["geometry"] != "rows":
            return
        for name, which, _ in filters_without_direction(group):
            raise ZeroFilterError(
                f"{name} has rows without a direction ({which}), which cannot be kept at unit norm: "
                "initialize them, or put the parameter into a 'plain' group"
            )
        require_unit_norm_in_parts()
        self._check_norms(group, group["params"])

    def _start(self, group: Group) -> None:
        super()._start(group)
        if group["geometry"] == "rows":
            versions = {p: _version_of(p) if p.requires_grad else None for p in group["params"]}
            self._unstepped = {**self._unstepped, **versions}

    def _check_norms(self, group: Group, some: list[Tensor], *, changed_since: bool = False) -> None:
        """Refuse to change norms, or warn of it, as the user wants."""
        known = frozenset[Tensor]() if self._gauge_start is None else self._gauge_start.unit
        changed = changes_of_norms(group, [p for p in some if p not in known])
        if not changed:
            return
        names, largest = list(changed), float(f"{max(changed.values()):.3g}")
        way_out = (
            "Give groups of symoptim.param_groups(model, example_inputs=(x,)), or of param_groups(model, "
            "example_inputs=(), keywords=dict(batch)) for a model called as model(**batch): with these "
            "outputs stay what they are. Or give normalize=True if the change is meant"
        )
        if changed_since:
            way_out = (
                "They were changed after the optimizer was made: load weights first and make groups and "
                "optimizer of them, or give normalize=True if the change is meant"
            )
        if group["normalize"] is False:
            raise OptionError(
                "normalize=False, and rows are not of unit norm (the length of one would have to change by a "
                f"factor of {largest:g}): {first_few(names)}. Two ways keep what the model computes: leave "
                "normalize out and give groups of symoptim.param_groups(model, example_inputs=...), or call "
                "symoptim.balance_(model, spec=spec) first and put rows that it cannot give unit norm into "
                "'plain' groups. normalize=True changes it"
            )
        if group["normalize"] is None and max(changed.values()) > 1 + NOTED:
            warn_user(
                f"UnitNormSGD divides rows by their norms: the length of a row changes by a factor of up to "
                f"{largest:g}, and what the model computes changes too, unless normalization layers follow: "
                f"{first_few(names)}. {way_out}",
                GeometryWarning,
            )

    def _warn_of_trainer(self) -> None:
        pass  # at unit norm its clipping is the invariant one

    def scales(self) -> Factors:
        """None: rows have unit norm, and columns and plain parameters take plain steps."""
        return {}

    def _check_step(self) -> None:
        """Look at rows before their first step too: they may have been frozen when added, or loaded since."""
        super()._check_step()
        first = {p: version for p, version in self._unstepped.items() if p.grad is not None}
        if not first:
            return
        for group in self.param_groups:
            if group["geometry"] == "rows":
                mine = [p for p in group["params"] if p in first]
                thawed = [p for p in mine if first[p] is None]
                self._check_norms(group, thawed)
                loaded = [p for p in mine if first[p] is not None and first[p] != _version_of(p)]
                self._check_norms(group, loaded, changed_since=True)
        self._unstepped = {p: version for p, version in self._unstepped.items() if p not in first}

    def __getstate__(self) -> State:
        return {**super().__getstate__(), "_unstepped": self._unstepped}

    def _known_start(
        self, params: ParameterGroups, model: nn.Module, spec: SymmetrySpec, normalize: bool | None
    ) -> GaugeStart | None:
        """How groups that know the symmetries of their model begin, and a warning of what is left plain."""
        if normalize is False:  # nothing is to be changed
            return None
        # Groups may have been added by hand: what they leave out is the optimizer's default.
        defaults: Group = {"geometry": "rows", "axis": 0, "normalize": normalize}
        start = gauge_start(model, spec, [{**defaults, **completed(group)} for group in params])
        if start.others:
            warn_user(
                "UnitNormSGD takes plain steps for weights whose rows do not have unit norm, and cannot be "
                f"given it without a change of outputs: {first_few(start.others)}. normalize=True normalizes "
                "them all the same",
                GeometryWarning,
            )
        return start

    def _start_all(self) -> None:
        if self._gauge_start is not None:
            self._gauge_start.rescale()
            self._gauge_start = None
        super()._start_all()


def _version_of(parameter: Tensor) -> int:
    """How often a parameter has been written to."""
    return 0 if parameter.is_inference() else parameter._version
