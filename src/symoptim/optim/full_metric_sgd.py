"""``FullMetricSGD``: SGD that no rescaling of the network can be seen in."""

from collections.abc import Mapping
from typing import ClassVar

from torch import nn
from torch.optim.optimizer import ParamsT

from symoptim.metric.gauge import Gauge, Pooled
from symoptim.optim.base import GeometricSGD
from symoptim.optim.model_metric import InModelMetric, ModelMetric, require_trainable
from symoptim.routing import Geometry
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.updates.catalog import PLAIN, Update
from symoptim.updates.step import Rate


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
