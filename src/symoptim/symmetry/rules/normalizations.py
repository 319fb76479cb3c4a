"""Normalizations: they swallow the scale of their input, which may not vary over what is normalized together.

The result has the scale of the gain. The eps that guards the division makes it exact only as far as it is
not felt.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from symoptim.symmetry.form import Deferred, Form, fixed
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import System, move
from symoptim.symmetry.tensors import aligned


def _affine(
    context: Context, shape: tuple[int, ...], gain: Form | None, shift: Form | None, after: int
) -> Form:
    """Form of ``normalized * gain + shift``; ``after`` axes follow those of the gain."""

    def placed(form: Form) -> Form:
        before = len(shape) - len(form.shape) - after
        settled = context.system.settle(form)
        moved = move(settled, lambda ids: ids.reshape([1] * before + list(ids.shape) + [1] * after))
        return Form(shape, moved.terms)

    result = placed(gain) if gain is not None else fixed(shape)
    return context.system.same(result, placed(shift)) if shift is not None else result


def _inverse(system: System, scale: Form) -> Form:
    return system.combine([(scale, -1)], scale.shape)


def _note(context: Context, eps: float | None) -> None:
    if eps:
        context.approximations.append(eps)


@rule("layer_norm", "native_layer_norm", sees_deferred=True)
def _layer_norm(
    context: Context,
    form: Form,
    normalized: Sequence[int],
    gain: Form | None = None,
    shift: Form | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Result:
    axes = range(-len(normalized), 0)
    system, returns_statistics = context.system, context.operation.name == "native_layer_norm"
    form = system.settle(form) if returns_statistics else form
    seen = form if form.factors else system.blind_to(form, axes)
    scale = system.const_along(system.normalized_by(seen, axes), axes)
    _note(context, eps)
    result = _affine(context, form.shape, gain, shift, 0)
    return (result, scale, _inverse(system, scale)) if returns_statistics else result


@rule("rms_norm", "_fused_rms_norm", sees_deferred=True)
def _rms_norm(
    context: Context,
    form: Form,
    normalized: Sequence[int],
    gain: Form | None = None,
    eps: float | None = None,
) -> Result:
    axes = range(-len(normalized), 0)
    system, returns_statistics = context.system, context.operation.name == "_fused_rms_norm"
    form = system.settle(form) if returns_statistics else form
    scale = system.const_along(system.normalized_by(form, axes), axes)
    _note(context, eps or 1e-7)  # without one torch takes the rounding of the type
    result = _affine(context, form.shape, gain, None, 0)
    return (result, _inverse(system, scale)) if returns_statistics else result


@rule("group_norm", sees_deferred=True)
def group_norm(
    context: Context,
    form: Form,
    groups: int,
    gain: Form | None = None,
    shift: Form | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Form:
    """Form of a group norm of ``(images, channels, ...)``."""
    count, channels = form.shape[:2]
    apart = move(form, lambda ids: ids.reshape(count, groups, channels // groups, *form.shape[2:]))
    together = range(2, len(apart.shape))
    context.system.const_along(context.system.blind_to(apart, together), together)
    _note(context, eps)
    return _affine(context, form.shape, gain, shift, len(form.shape) - 2)


@rule("native_group_norm")
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
    apart = move(form, lambda ids: ids.reshape(count, groups, -1))
    scale = move(context.system.const_along(apart, [2]), lambda ids: ids.reshape(count, groups))
    return group_norm(context, form, groups, gain, shift, eps), scale, _inverse(context.system, scale)


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
    *_: Any,
) -> Result:
    for statistic in (mean, variance):
        if statistic is not None:
            context.system.pin(statistic)
            context.system.pin(form)
    image = range(2, len(form.shape))
    context.system.const_along(context.system.blind_to(form, image), image)
    _note(context, eps)
    return _affine(context, form.shape, gain, shift, len(form.shape) - 2)


@rule("_native_batch_norm_legit_functional", "_native_batch_norm_legit", sees_deferred=True)
def _batch_norm_training(
    context: Context,
    form: Form,
    gain: Form | None,
    shift: Form | None,
    *rest: Any,
) -> Result:
    *running, training, _, eps = rest
    if not training:
        raise CannotTell
    system = context.system
    batch = [0, *range(2, len(form.shape))]

    def channels(seen: Form) -> Form:
        return move(system.const_along(seen, batch), lambda ids: ids.reshape(-1))

    # A bias before it is subtracted again: its scale is free, as long as nobody looks at the mean.
    scale = channels(system.blind_to(form, batch))
    bias = (
        (Deferred(torch.arange(form.shape[1]), lambda: channels(system.settle(form))),)
        if form.addends
        else ()
    )
    _note(context, eps)
    result = _affine(context, form.shape, gain, shift, len(form.shape) - 2)
    found = (result, replace(scale, addends=bias), _inverse(system, scale))
    if not running:
        return found
    mean, variance = map(system.settle, running)
    following = system.same(scale, mean)  # statistics follow the features they are of
    squared = system.same(system.combine([(scale, 2)], scale.shape), variance)
    return *found, replace(following, addends=bias), squared


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_evaluation(
    context: Context,
    form: Form,
    gain: Form | None,
    shift: Form | None,
    mean: Form,
    variance: Form,
    momentum: float,
    eps: float,
) -> Result:
    system, after = context.system, len(form.shape) - 2

    def placed(one: Form) -> Form:
        return move(one, lambda ids: ids.reshape(1, -1, *[1] * after))

    if variance.has_zeros:
        raise CannotTell  # all that is left is eps
    _note(context, eps)
    centered = system.same(form, placed(mean))
    factors: list[tuple[Form, int | Fraction]] = [(centered, 1), (placed(variance), Fraction(-1, 2))]
    factors += [(placed(gain), 1)] if gain is not None else []
    result = system.combine(factors, form.shape)
    result = system.same(result, placed(shift)) if shift is not None else result
    return result, fixed((0,)), fixed((0,))


@rule("native_batch_norm", sees_deferred=True)
def _batch_norm_recorded(
    context: Context, form: Form, gain: Form | None, shift: Form | None, *rest: Any
) -> Result:
    """As a recorded pass has it: both modes in one operation, which writes to the statistics unseen."""
    mean, variance, training, momentum, eps = rest
    if training:
        found = _batch_norm_training(context, form, gain, shift, *rest)
        return found[:3] if isinstance(found, tuple) else found
    settled = context.system.settle(form)
    return _batch_norm_evaluation(context, settled, gain, shift, mean, variance, momentum, eps)


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
