"""``FullMetricSGD``: SGD that no rescaling of the network can be seen in; and what else has that metric."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError
from symoptim.metric.gauge import Gauge, Pooled
from symoptim.modules import unwrapped
from symoptim.optim.base import GeometricSGD
from symoptim.optim.functional import Factors
from symoptim.optim.master_weights import State
from symoptim.optim.model_metric import ModelMetric
from symoptim.optim.validation import Group, require_params
from symoptim.routing import Geometry
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.updates.catalog import PLAIN, Update
from symoptim.updates.step import Rate


class InModelMetric(Optimizer):
    """Mixin of optimizers whose parameters have the scales of a model's full metric.

    It goes before a class that has ``_check_saved(saved)`` and ``_finish_loading(saved)``.
    """

    metric: ModelMetric  # pyright: ignore[reportIncompatibleVariableOverride]

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of the model's parameters; one that is refused changes nothing."""
        if param_group.get("geometry", "plain") != "plain":
            raise OptionError(
                f"geometry '{param_group['geometry']}' has no place in the full metric, which gives every "
                "weight a scale: give parameters of the model, or groups without 'geometry'"
            )
        require_params(param_group)
        given = param_group["params"]
        named = [self.metric.named(member) for member in ([given] if isinstance(given, Tensor) else given)]
        super().add_param_group({**param_group, "params": named, "geometry": "plain", **self.metric.saved()})
        self.metric.warnings.grouped(parameter for _, parameter in named)

    def scales(self) -> Factors:
        """Scales s of the parameters that move with any rescaling of the model."""
        self.metric.require_all_seen()
        return self.metric.factors(self.state, 1.0)

    def _check_saved(self, saved: State) -> None:
        super()._check_saved(saved)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        for group in saved["param_groups"]:
            self.metric.require_ours(group["alive"])

    def _finish_loading(self, saved: State) -> None:
        super()._finish_loading(saved)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        # A state without any memory, of another optimizer that has not stepped, leaves ours as it is.
        self.metric.load(self.param_groups[0].get("alive", self.metric.full.alive))
        for group in self.param_groups:
            group["alive"] = self.metric.full.alive.clone()

    def __repr__(self) -> str:
        """As torch's, without the long memory of which blocks were zero."""
        groups = self.param_groups
        self.param_groups = [{key: group[key] for key in group if key != "alive"} for group in groups]
        try:
            return super().__repr__()
        finally:
            self.param_groups = groups

    def __getstate__(self) -> State:
        return {**super().__getstate__(), "metric": self.metric}


def require_trainable(model: nn.Module) -> list[Tensor]:
    """Parameters of a model that are trained; an error if there are none."""
    found: list[Tensor] = [one for one in unwrapped(model).parameters() if one.requires_grad]
    if not found:
        raise OptionError(
            f"no parameter of {type(unwrapped(model)).__name__} requires gradients, so that there is "
            "nothing to train: call requires_grad_() of what is to be trained first, or give parameters that "
            "will be as groups="
        )
    return found


class FullMetricSGD(InModelMetric, GeometricSGD):  # pyright: ignore[reportIncompatibleVariableOverride]
    r"""SGD in the full metric: every weight's gradient times the square of a scale that moves with it.

    .. math:: \theta \leftarrow \theta - r\, s^2 g

    with s = u_o / u_k for a weight from unit k to unit o, u the sizes of units
    (:mod:`symoptim.metric.gauge`). The loss curve is the same from every rescaling of the weights that leaves
    the network's outputs as they are, biases, gains, attention and all; with momentum (the buffer holds
    :math:`s^2 g`), Nesterov and decoupled weight decay too.

    Blocks that are zero when the optimizer is made (a residual branch that starts at zero) take the sizes of
    what else moves with them. State dicts remember which blocks these were. When units are pruned later, make
    a new optimizer: a size that has become zero counts as one.

    Clip gradients by ``max_norm``: ``torch.nn.utils.clip_grad_norm_`` brings the scaling back in. Trainers
    call it, and a warning says so for those of Hugging Face and Lightning. Switch that off:
    ``TrainingArguments(max_grad_norm=0)``, ``Trainer(gradient_clip_val=None)``.

    >>> import torch, symoptim
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> x = torch.rand(4, 8)
    >>> optimizer = FullMetricSGD(model, symoptim.discover(model, (x,)), lr=0.1, momentum=0.9)
    >>> model(x).square().mean().backward()
    >>> optimizer.step()
    """

    updates: ClassVar[Mapping[Geometry, Update]] = {"plain": PLAIN}
    state_exponents: ClassVar[Mapping[str, int]] = {"momentum_buffer": 1, "master": 1}
    """Powers of the weight's scale by which state moves, for :meth:`.SymmetrySpec.rescale_`."""

    def __init__(
        self,
        model: nn.Module,
        spec: SymmetrySpec | None = None,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        *,
        gauge: Gauge = Pooled(),  # noqa: B008 - frozen
        groups: ParamsT | None = None,
        max_norm: float | None = None,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        """Take a model and its symmetries.

        Args:
            model: the network; all its parameters that require gradients are trained. Those that thaw later
                are not, and a warning names them, until ``add_param_group`` adds them.
            spec: its symmetries, of :func:`symoptim.discover`; found in the mode it is trained in, for batch
                normalization has others in evaluation; a step in another mode warns. There is no default:
                without them this raises.
            lr: rate, a number or a 1-element Tensor.
            momentum: momentum factor.
            gauge: how sizes of units become scales of weights.
            groups: parameters of the model, or groups with options of their own, if not all are to be
                trained alike.
            max_norm: the longest gradient there may be: every step begins with
                :func:`symoptim.clip_invariant_norm_`. None clips nothing.
            nesterov: look ahead along the momentum.
            weight_decay: decoupled decay, ``w (1 - lr weight_decay)``.
            maximize: ascend instead of descend.
            foreach: step all parameters of one shape together; by default on accelerators only.
            fused: read sizes and step by kernels; by default wherever there are some. True raises where there
                are none for a parameter, False never uses any.
            capturable: make the state at once and keep the rate as a tensor beside the parameters.
        """
        self.metric = ModelMetric(model, spec, gauge)
        super().__init__(
            require_trainable(model) if groups is None else groups,
            lr,
            momentum,
            max_norm=max_norm,
            nesterov=nesterov,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
        )
