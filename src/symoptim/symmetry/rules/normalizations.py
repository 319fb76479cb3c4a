"""Normalizations divide out the scale of their input, which may not vary over what is normalized together.

The result has the scale of the gain. It is approximate where the eps that guards the division matters; a
large eps is part of the function, and then the input cannot scale.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from symoptim.symmetry.form import Deferred, Form, fixed
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import System, move
from symoptim.symmetry.tensors import aligned


def affine(
    context: Context, shape: tuple[int, ...], gain: Form | None, shift: Form | None, after: int
) -> Form:
    """Form of ``normalized * gain + shift``, the latter put off; ``after`` axes follow those of the gain."""

    def around(tensor: Tensor) -> Tensor:
        before = len(shape) - tensor.dim() - after
        return tensor.reshape([1] * before + list(tensor.shape) + [1] * after)

    def placed(form: Form) -> Form:
        return Form(shape, move(context.system.settle(form), around).terms)

    result = placed(gain) if gain is not None else fixed(shape)
    if shift is None:
        return result
    spread = around(torch.arange(math.prod(shift.shape)).reshape(shift.shape))
    return replace(result, addends=(Deferred(spread, lambda: placed(shift)),))


def inverse(system: System, scale: Form) -> Form:
    """Form of a divisor's inverse, as the backward pass wants it."""
    return system.combine([(scale, -1)], scale.shape)


LARGEST_EPS = 1e-3
"""Up to here, the largest that published networks have, the eps of a normalization guards its division."""


def note_eps(context: Context, eps: float | None, guarded: Form) -> None:
    """List the eps of a normalization among what is not exact; what it is added to is pinned if it is large.

    Args:
        context: of the normalization.
        eps: its eps.
        guarded: scale of what is normalized, or the variance it is divided by.
    """
    if eps and eps > LARGEST_EPS:
        context.system.pin(guarded)
    elif eps:
        context.approximations.append(eps)


@rule("layer_norm", "native_layer_norm", sees_deferred=True)
def _layer_norm(
    context: Context,
    form: Form,
    normalized: Sequence[int],
    gain: Form | None = None,
    shift: Form | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Result:
    axes = range(-len(normalized), 0)
    system = context.system
    form = system.settle(form) if context.reads_statistics else form
    seen = form if form.factors else system.blind_to(form, axes)
    scale = system.const_along(system.normalized_by(seen, axes), axes)
    note_eps(context, eps, scale)
    result = affine(context, form.shape, gain, shift, 0)
    if context.operation.name == "layer_norm":
        return result
    return result, scale, inverse(system, scale)


@rule("rms_norm", "_fused_rms_norm", sees_deferred=True)
def _rms_norm(
    context: Context,
    form: Form,
    normalized: Sequence[int],
    gain: Form | None = None,
    eps: float | None = None,
) -> Result:
    axes = range(-len(normalized), 0)
    system = context.system
    form = system.settle(form) if context.reads_statistics else form
    scale = system.const_along(system.normalized_by(form, axes), axes)
    note_eps(context, eps or 1e-7, scale)  # without one torch takes the rounding of the type
    result = affine(context, form.shape, gain, None, 0)
    return result if context.operation.name == "rms_norm" else (result, inverse(system, scale))


@rule("group_norm", sees_deferred=True)
def group_norm(
    context: Context,
    form: Form,
    groups: int,
    gain: Form | None = None,
    shift: Form | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Form:
    """Form of a group norm of ``(images, channels, ...)``."""
    count, channels = form.shape[:2]
    apart = move(form, lambda ids: ids.reshape(count, groups, channels // groups, *form.shape[2:]))
    together = range(2, len(apart.shape))
    scale = context.system.const_along(context.system.blind_to(apart, together), together)
    note_eps(context, eps, scale)
    return affine(context, form.shape, gain, shift, len(form.shape) - 2)


@rule("native_group_norm", sees_deferred=True)
def _group_norm_recorded(
    context: Context,
    form: Form,
    gain: Form | None,
    shift: Form | None,
    count: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> Result:
    result = group_norm(context, form, groups, gain, shift, eps)
    if not context.reads_statistics:
        return result, fixed((count, groups)), fixed((count, groups))
    apart = move(context.system.settle(form), lambda ids: ids.reshape(count, groups, -1))
    scale = move(context.system.const_along(apart, [2]), lambda ids: ids.reshape(count, groups))
    return result, scale, inverse(context.system, scale)


@rule("instance_norm", sees_deferred=True)
def _instance_norm(
    context: Context,
    form: Form,
    gain: Form | None,
    shift: Form | None,
    mean: Form | None,
    variance: Form | None,
    use_input: bool,
    momentum: float,
    eps: float,
    *_: object,
) -> Result:
    for statistic in (mean, variance):
        if statistic is not None:
            context.system.pin(statistic)
            context.system.pin(form)
    image = range(2, len(form.shape))
    scale = context.system.const_along(context.system.blind_to(form, image), image)
    note_eps(context, eps, scale)
    return affine(context, form.shape, gain, shift, len(form.shape) - 2)


@rule("_weight_norm", "_weight_norm_interface")
def _weight_norm(context: Context, direction: Form, length: Form, axis: int = 0) -> Result:
    axes = len(direction.shape)
    # An axis of -1 is none: the norm of all.
    scale = context.system.const_along(direction, [other for other in range(axes) if other != axis])
    terms = context.system.single(length).terms
    result = Form(direction.shape, tuple(aligned(term, axes) for term in terms))
    if context.operation.name == "_weight_norm":
        return result
    return result, scale
