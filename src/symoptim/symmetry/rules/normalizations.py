"""Normalizations: they swallow the scale of their input, which may not vary over what is normalized together.

The result has the scale of the gain. The eps that guards the division makes it exact only as far as it is
not felt.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from symoptim.symmetry.form import Form, fixed
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import move


def _affine(
    context: Context, shape: tuple[int, ...], gain: Form | None, shift: Form | None, after: int
) -> Form:
    """Form of ``normalized * gain + shift``; ``after`` axes follow those of the gain."""

    def placed(form: Form) -> Form:
        before = len(shape) - len(form.shape) - after
        moved = move(
            context.system.settle(form), lambda ids: ids.reshape([1] * before + list(ids.shape) + [1] * after)
        )
        return Form(shape, moved.terms)

    result = placed(gain) if gain is not None else fixed(shape)
    return context.system.same(result, placed(shift)) if shift is not None else result


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
    seen = form if form.factors else context.system.blind_to(form, axes)
    context.system.const_along(context.system.normalized_by(seen, axes), axes)
    _note(context, eps)
    result = _affine(context, form.shape, gain, shift, 0)
    if context.operation.name == "layer_norm":
        return result
    mean, deviation = context.operation.result[1:]
    return result, fixed(mean.shape), fixed(deviation.shape)


@rule("rms_norm", "_fused_rms_norm", sees_deferred=True)
def _rms_norm(
    context: Context,
    form: Form,
    normalized: Sequence[int],
    gain: Form | None = None,
    eps: float | None = None,
) -> Result:
    axes = range(-len(normalized), 0)
    context.system.const_along(context.system.normalized_by(form, axes), axes)
    _note(context, eps or 1e-7)  # without one torch takes the rounding of the type
    result = _affine(context, form.shape, gain, None, 0)
    if context.operation.name == "rms_norm":
        return result
    return result, fixed(context.operation.result[1].shape)


@rule("group_norm", sees_deferred=True)
def _group_norm(
    context: Context,
    form: Form,
    groups: int,
    gain: Form | None = None,
    shift: Form | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Result:
    count, channels = form.shape[:2]
    apart = move(form, lambda ids: ids.reshape(count, groups, channels // groups, *form.shape[2:]))
    together = range(2, len(apart.shape))
    context.system.const_along(context.system.blind_to(apart, together), together)
    _note(context, eps)
    return _affine(context, form.shape, gain, shift, len(form.shape) - 2)


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


def _by_batch(
    context: Context, form: Form, gain: Form | None, shift: Form | None, eps: float
) -> tuple[Form, Form, Form]:
    """Forms of what is normalized over the batch, of its scale by channel, and of the inverse of that."""
    system, channels = context.system, form.shape[1]
    batch = [0, *range(2, len(form.shape))]
    # A bias before it is subtracted again: its scale is free.
    tied = system.const_along(system.blind_to(form, batch), batch)
    _note(context, eps)
    scale = move(tied, lambda ids: ids.reshape(channels))
    result = _affine(context, form.shape, gain, shift, len(form.shape) - 2)
    return result, scale, system.combine([(scale, -1)], scale.shape)


@rule("_native_batch_norm_legit", sees_deferred=True)
def _batch_norm_without_statistics(
    context: Context,
    form: Form,
    gain: Form | None,
    shift: Form | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Result:
    return _by_batch(context, form, gain, shift, eps)


@rule("_native_batch_norm_legit_functional", sees_deferred=True)
def _batch_norm_training(
    context: Context,
    form: Form,
    gain: Form | None,
    shift: Form | None,
    mean: Form,
    variance: Form,
    training: bool,
    momentum: float,
    eps: float,
) -> Result:
    system = context.system
    result, scale, inverse = _by_batch(context, form, gain, shift, eps)
    running_mean = system.same(scale, mean)  # statistics follow the features they are of
    running_variance = system.same(system.combine([(scale, 2)], scale.shape), variance)
    return result, scale, inverse, running_mean, running_variance


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

    _note(context, eps)
    centered = system.same(form, placed(mean))
    factors: list[tuple[Form, int | Fraction]] = [(centered, 1), (placed(variance), Fraction(-1, 2))]
    factors += [(placed(gain), 1)] if gain is not None else []
    result = system.combine(factors, form.shape)
    result = system.same(result, placed(shift)) if shift is not None else result
    return result, fixed((0,)), fixed((0,))


@rule("_weight_norm", "_weight_norm_interface")
def _weight_norm(context: Context, direction: Form, length: Form, axis: int = 0) -> Result:
    others = [other for other in range(len(direction.shape)) if other != axis % len(direction.shape)]
    context.system.const_along(direction, others)
    result = Form(direction.shape, context.system.single(length).terms)
    if context.operation.name == "_weight_norm":
        return result
    return result, fixed(length.shape)
