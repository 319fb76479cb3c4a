"""Clip gradients by a length that no rescaling changes."""

import math
from collections.abc import Iterable
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from symoptim.errors import GeometryWarning, OptionError, callers, warn_user
from symoptim.geometry.tensors import gathered, replicated_like, update_dtype
from symoptim.modules import unwrapped_optimizer
from symoptim.optim.amp import loss_scaling
from symoptim.optim.functional import Factors, times
from symoptim.optim.master_weights import State
from symoptim.optim.validation import check_gradients, zero_redundancy_optimizer


class HasScales(Protocol):
    """An optimizer whose parameters have scales."""

    def scales(self) -> Factors:
        """Scales as factors, by parameter."""
        ...


class Clipping(Optimizer):
    """Mixin of optimizers that clip gradients at the beginning of their steps, if they are asked to."""

    max_norm: float | None = None
    _trainer_checked: bool = False

    @property
    def _made_by(self) -> str:
        """What takes the options of this optimizer."""
        return type(self).__name__

    def _warn_of_trainer(self) -> None:
        """Say so once if a trainer, among the callers of a step, clips gradients in its own way."""
        if not self._trainer_checked and (found := _trainer_that_clips()):
            what, size, way_out = found
            warn_user(
                f"{what}, which depends on the scaling of the weights, and so do the steps: give {way_out} "
                f"to the trainer, and max_norm={size:g} to {self._made_by}",
                GeometryWarning,
            )
        self._trainer_checked = True

    def set_max_norm(self, max_norm: float | None) -> None:
        """Clip from now on, or do not; an error if it is no number, or not all gradients are there."""
        require_length(max_norm)
        if max_norm is not None and zero_redundancy_optimizer() is not None:
            raise OptionError(
                f"max_norm={max_norm!r}: ZeroRedundancyOptimizer gives each process a part of the gradients, "
                "and each would clip by the length of its own: leave max_norm out, or shard with FSDP2 "
                "(fully_shard), where lengths are those of the whole"
            )
        self.max_norm = max_norm

    def _clipping_share(self, max_norm: float) -> Tensor:
        """What clipping would multiply gradients by; nothing is written."""
        return _length_and_share(self, max_norm)[1]

    def __getstate__(self) -> State:
        state = super().__getstate__()
        return {**state, "max_norm": self.max_norm} if "max_norm" in vars(self) else state


TRAINERS = {
    "transformers": ("max_grad_norm", "TrainingArguments(max_grad_norm=0)"),
    "lightning": ("gradient_clip_val", "gradient_clip_val=None"),
    "pytorch_lightning": ("gradient_clip_val", "gradient_clip_val=None"),
}
"""By package, the option of its ``Trainer`` to clip gradients, and how to switch it off."""


def _trainer_that_clips() -> tuple[str, float, str] | None:
    """What a trainer among the callers does to gradients, how long it leaves them, and how to end it."""
    for frame in callers():
        one: object = frame.f_locals.get("self")
        for kind in type(one).__mro__:
            package = kind.__module__.partition(".")[0]
            if kind.__name__ != "Trainer" or package not in TRAINERS:
                continue
            option, way_out = TRAINERS[package]
            size: object = getattr(getattr(one, "args", one), option, None)
            if isinstance(size, float | int) and size > 0:
                algorithm: object = getattr(one, "gradient_clip_algorithm", None)  # a string, or an Enum
                by_value = getattr(algorithm, "value", algorithm) == "value"
                how = "entry by entry, by value" if by_value else "by their Euclidean norm"
                return f"the Trainer of {package} clips gradients {how} ({option}={size:g})", size, way_out
    return None


@torch.no_grad()
def clip_invariant_norm_(optimizer: Optimizer, max_norm: float) -> Tensor:
    r"""Make the gradients of an optimizer's parameters shorter if they are longer than ``max_norm``.

    The length is the one of the optimizer's own metric,

    .. math:: |g| = \Bigl( \sum_i s_i^2 g_i^2 \Bigr)^{1/2} ,

    which is the same at every point of an orbit; ``torch.nn.utils.clip_grad_norm_`` has s = 1 and would bring
    the scaling of the weights back in. Nothing waits for the device. Gradients of which the length is not a
    number are left as they are; where it is infinite, finite ones become zero, as with torch's.

    Trainers clip by ``torch.nn.utils.clip_grad_norm_``; those of Hugging Face and Lightning are recognized in
    the first step, with a warning. Switch that off (``TrainingArguments(max_grad_norm=0)``,
    ``gradient_clip_val=None``) and give the optimizer ``max_norm=1.0``: every step then begins with this
    function. In a loop of your own do the same, or call it before ``optimizer.step()``; with a
    ``GradScaler`` after its ``unscale_``. No step can see that a loop has called torch's ``clip_grad_norm_``,
    or that of Accelerate's ``Accelerator``, before it: nothing warns of these, so leave them out.

    Args:
        optimizer: ``FullMetricSGD``, ``ScaledSGD``, ``UnitNormSGD`` (which has s = 1), or one that
            :func:`symoptim.invariant` made.
        max_norm: the longest there may be.

    Returns:
        The length before, a tensor of no axes.

    Raises:
        OptionError: the optimizer has no scales, or ``max_norm`` is not a number >= 0.

    >>> import symoptim
    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = symoptim.ScaledSGD([w], lr=0.1)
    >>> w[0, 0].backward()
    >>> clip_invariant_norm_(optimizer, 1.0), w.grad
    (tensor(5.), tensor([[0.2000, 0.0000]]))
    """
    optimizer = unwrapped_optimizer(optimizer)
    if not hasattr(optimizer, "scales"):
        raise OptionError(
            f"{type(optimizer).__name__} has no scales to measure gradients by: take an optimizer of "
            "symoptim, or torch.nn.utils.clip_grad_norm_"
        )
    require_length(max_norm)
    length, share = _length_and_share(optimizer, max_norm)
    shorten(gradients_of(optimizer), share)
    return length


def gradients_of(optimizer: Optimizer) -> list[tuple[Tensor, Tensor]]:
    """Parameters that have a gradient, with it."""
    return [(p, p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def shorten(gradients: Iterable[tuple[Tensor, Tensor]], share: Tensor) -> None:
    """Multiply the gradients of parameters by one number, in place."""
    for _, gradient in gradients:
        gradient.mul_(replicated_like(share, gradient))


def _length_and_share(optimizer: Optimizer, max_norm: float) -> tuple[Tensor, Tensor]:
    """Length of an optimizer's gradients, and what makes them no longer than ``max_norm``."""
    check_gradients(optimizer.param_groups)
    scales = cast("HasScales", optimizer).scales()
    squares = [_squared_length(gradient, scales.get(p, ())) for p, gradient in gradients_of(optimizer)]
    if not squares:
        return torch.zeros(()), torch.ones(())
    length = torch.stack([square.to(squares[0]) for square in squares]).sum().sqrt()
    if (scaling := loss_scaling(optimizer)) is not None:  # within a step that a GradScaler has called
        length = scaling.undone(length)
    return length, torch.where(length > max_norm, max_norm / length, 1.0)


def require_length(max_norm: object) -> None:
    """Refuse what is no length; None is one that is never reached."""
    if max_norm is None:
        return
    if isinstance(max_norm, bool) or not isinstance(max_norm, float | int) or not 0 <= max_norm < math.inf:
        raise OptionError(f"max_norm must be a finite number >= 0, got {max_norm!r}")


def _squared_length(gradient: Tensor, factors: tuple[Tensor, ...]) -> Tensor:
    return gathered(times(gradient.to(update_dtype(gradient.dtype)), factors).square().sum())
