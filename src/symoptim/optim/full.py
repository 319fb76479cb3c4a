"""``FullMetricSGD``: SGD that no rescaling of the network can be seen in."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from symoptim.metric.fused import FusedMetric
from symoptim.metric.gauge import Gauge, Pooled
from symoptim.metric.sides import Sides
from symoptim.optim.apply import Factors
from symoptim.optim.base import GeometricSGD
from symoptim.optim.bound import BoundMetric
from symoptim.optim.fused import FusedSteps
from symoptim.optim.fusible import wants_fused
from symoptim.optim.in_full_metric import InFullMetric, require_trainable
from symoptim.routing import Geometry
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.updates.catalog import PLAIN, Update
from symoptim.updates.step import Rate


class FullMetricSGD(InFullMetric, GeometricSGD):
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

    _fused_metric: FusedMetric | None = None
    _looked_at: FusedSteps | None = None

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
        self.set_max_norm(max_norm)
        self.bound = BoundMetric(model, spec, gauge)
        super().__init__(
            require_trainable(model) if groups is None else groups,
            lr,
            momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            capturable=capturable,
        )

    def _sides(self) -> Mapping[Tensor, Sides | None]:
        self.bound.require_all_seen()  # before any state is made
        for group in self.param_groups:  # which may have got others since they were added
            for parameter in group["params"]:
                self._named(parameter)
        self._fused_metric = self.bound.fused(2.0) if any(map(wants_fused, self.param_groups)) else None
        return self.bound.sides(self._fused_metric)

    def _still_fits(self, fused: FusedSteps) -> bool:
        if not super()._still_fits(fused):
            return False
        return self._looked_at is not fused or self.bound.sight(self._rest) == self._seen

    def _metric(self, fused: FusedSteps) -> Factors:
        self.bound.require_all_seen()
        if self._fused_metric is not None and fused.stepped:
            if fused is not self._looked_at:
                self._look_at_rest(fused)
            self._fused_metric.refresh(lambda: self.bound.weights(self.state))
        return self.bound.factors(self.state, 2.0) if any(fused.left) else {}

    def _look_at_rest(self, fused: FusedSteps) -> None:
        """Note where the weights are that kernels read and do not step; the others are looked at in steps."""
        stepped = set(fused.stepped)
        self._looked_at = fused
        self._rest = [parameter for parameter in self.bound.tensors.values() if parameter not in stepped]
        self._seen = self.bound.sight(self._rest)
