"""``FullMetricSGD``: SGD that no rescaling of the network can be seen in."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from symoptim.errors import OptionError
from symoptim.metric.gauge import Gauge, Pooled
from symoptim.optim.apply import Factors
from symoptim.optim.base import GeometricSGD
from symoptim.optim.bound import BoundMetric
from symoptim.optim.checks import Group, labeled
from symoptim.routing import Geometry
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.updates.catalog import PLAIN, Update
from symoptim.updates.step import Rate


class FullMetricSGD(GeometricSGD):
    r"""SGD in the full metric: every weight's gradient times the square of a scale that moves with it.

    .. math:: \theta \leftarrow \theta - r\, s^2 g

    with s = u_o / u_k for a weight from unit k to unit o, u the sizes of units
    (:mod:`symoptim.metric.gauge`). The loss curve is the same from every rescaling of the weights that leaves
    the network's outputs as they are, biases, gains, attention and all; with momentum (the buffer holds
    :math:`s^2 g`), Nesterov and decoupled weight decay too.

    Blocks that are zero when the optimizer is made (a residual branch that starts at zero) take the sizes of
    what else moves with them. State dicts remember which blocks these were.

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
        spec: SymmetrySpec,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        *,
        gauge: Gauge = Pooled(),  # noqa: B008 - frozen
        params: ParamsT | None = None,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
    ) -> None:
        """Take a model and its symmetries.

        Args:
            model: the network; all its parameters that require gradients are trained.
            spec: its symmetries, of :func:`symoptim.discover`.
            lr: rate, a number or a 1-element Tensor.
            momentum: momentum factor.
            gauge: how sizes of units become scales of weights.
            params: parameters of the model, or groups with options of their own, if not all are to be
                trained alike.
            nesterov: look ahead along the momentum.
            weight_decay: decoupled decay, ``w (1 - lr weight_decay)``.
            maximize: ascend instead of descend.
            foreach: step all parameters of one shape together; by default on accelerators only.
            capturable: make the state at once and keep the rate as a tensor beside the parameters.
        """
        self.bound = BoundMetric(model, spec, gauge)
        super().__init__(
            named_trainable(model) if params is None else params,
            lr,
            momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
        )

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of the model's parameters."""
        super().add_param_group({**param_group, "geometry": "plain", **self.bound.saved()})

    def _check(self, group: Group) -> None:
        super()._check(group)
        require_of_model(group, self.bound)

    def scales(self) -> Factors:
        """Scales s of the parameters that move with any rescaling of the model."""
        return self.bound.factors(self.state, 1.0)

    def _metric(self) -> Factors:
        return self.bound.factors(self.state, 2.0)

    def _finish_loading(self, saved: dict[str, Any]) -> None:
        super()._finish_loading(saved)
        take_up(self.bound, self.param_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "bound": self.bound}


def named_trainable(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters of a model that are trained, with their names."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def require_of_model(group: Group, bound: BoundMetric) -> None:
    """Refuse parameters that are not the model's: nothing is known of their scale."""
    for name, parameter in labeled(group):
        if parameter not in bound.names:
            raise OptionError(
                f"{name} is none of the model's: the full metric knows only the model's parameters"
            )


def take_up(bound: BoundMetric, groups: list[Group]) -> None:
    """Go on with the blocks that a loaded state has found zero."""
    bound.take_up(groups[0]["alive"])
    for group in groups:
        group["alive"] = bound.metric.alive
