"""Batch normalization: by the batch in training mode, in evaluation by statistics, which move along.

In training mode with running statistics a bias in front of it belongs to its row: the outputs do not show it,
but the running mean does, and evaluation reads that.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch

from symoptim.symmetry.form import Deferred, Form, fixed
from symoptim.symmetry.rules.normalizations import affine, inverse, note_eps
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.system import move


@rule("_native_batch_norm_legit_functional", "_native_batch_norm_legit", sees_deferred=True)
def _training(
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

    # A bias before it is subtracted again, so that its scale is free, unless a running mean keeps it.
    scale = channels(system.settle(form) if running else system.blind_to(form, batch))
    bias = (
        (Deferred(torch.arange(form.shape[1]), lambda: channels(system.settle(form))),)
        if form.addends and not running
        else ()
    )
    note_eps(context, eps, scale)
    result = affine(context, form.shape, gain, shift, len(form.shape) - 2)
    found = (result, replace(scale, addends=bias), inverse(system, scale))
    if not running:
        return found
    mean, variance = map(system.settle, running)
    following = system.same(scale, mean)  # statistics follow the features they are of
    return *found, following, system.same(system.combine([(scale, 2)], scale.shape), variance)


@rule("_native_batch_norm_legit_no_training")
def _evaluation(
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
    note_eps(context, eps, variance)
    centered = system.same(form, placed(mean))
    factors: list[tuple[Form, int | Fraction]] = [(centered, 1), (placed(variance), Fraction(-1, 2))]
    factors += [(placed(gain), 1)] if gain is not None else []
    result = system.combine(factors, form.shape)
    result = system.same(result, placed(shift)) if shift is not None else result
    saved = context.operation.result[1:]  # without entries, but for devices that return the statistics
    if context.reads_statistics and any(one.numel() for one in saved):
        raise CannotTell
    return result, *(fixed(one.shape) for one in saved)


@rule("native_batch_norm", sees_deferred=True)
def _recorded(context: Context, form: Form, gain: Form | None, shift: Form | None, *rest: Any) -> Result:
    """As a recorded pass has it: both modes in one operation, which writes to the statistics unseen."""
    mean, variance, training, momentum, eps = rest
    if training:
        running = [one for one in (mean, variance) if one is not None]
        found = _training(context, form, gain, shift, *running, training, momentum, eps)
        return found[:3] if isinstance(found, tuple) else found
    settled = context.system.settle(form)
    return _evaluation(context, settled, gain, shift, mean, variance, momentum, eps)
