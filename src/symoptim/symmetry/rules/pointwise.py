"""Operations on single elements: those that pass a positive scale through, and those that pin it."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from symoptim.symmetry.form import Form, anything, fixed
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import move
from symoptim.symmetry.tensors import keeps_digits

COPIES = "clone alias detach _to_copy to contiguous lift_fresh_copy lift_fresh".split()
HOMOGENEOUS = (
    "relu leaky_relu neg abs dropout native_dropout feature_dropout tril triu rrelu "
    "rrelu_with_noise rrelu_with_noise_functional positive real imag conj conj_physical _conj _conj_physical "
    "resolve_conj _resolve_conj resolve_neg _neg_view"
).split()
NONLINEAR = (
    "gelu silu sigmoid tanh exp log elu selu celu softplus softshrink hardshrink threshold hardtanh relu6 "
    "hardswish hardsigmoid mish sin cos erf log1p expm1 logsumexp logit cross_entropy_loss nll_loss "
    "nll_loss_forward nll_loss2d_forward log_softmax _log_softmax log_sigmoid atan asin acos sinh cosh "
    "exp2 log2 round floor ceil mse_loss floor_divide remainder fmod histc bincount searchsorted bucketize "
    "_local_scalar_dense linspace logspace"
).split()
# They see no scale at all: signs, and what is made from nothing.
SCALE_FREE = (
    "sign sgn angle isnan isinf isfinite logical_not logical_and logical_or logical_xor bitwise_and "
    "bitwise_or "
    "bitwise_not arange ones empty rand randn randint randperm any all one_hot "
    "sym_constrain_range eye"
).split()
# Not even a value: only the shape or the type.
SHAPE_ONLY = (
    "ones_like new_ones empty_like new_empty rand_like randn_like sym_size _assert_tensor_metadata"
).split()
ZEROS = "zeros zeros_like new_zeros".split()


@rule(*COPIES, sees_deferred=True)
def _copy(context: Context, form: Form, *_: object, **__: object) -> Result:
    result = context.operation.result
    if result.dtype == torch.bool:
        context.system.settle(form)
        return fixed(context.shape)  # only whether it is zero
    return form if keeps_digits(result) else context.system.pin(form)


@rule(*HOMOGENEOUS, sees_deferred=True)
def _homogeneous(context: Context, form: Form, *_: object, **__: object) -> Result:
    form = context.system.settle(form) if form.addends else form  # a factor passes through
    result = context.operation.result
    if isinstance(result, Tensor):
        return form
    return (form, *(fixed(other.shape) for other in result[1:]))  # a mask of what was dropped


@rule(*NONLINEAR)
def _nonlinear(context: Context, *arguments: object, **keywords: object) -> Result:
    for argument in (*arguments, *keywords.values()):
        if isinstance(argument, Form):
            context.system.pin(argument)
    result = context.operation.result
    if isinstance(result, list | tuple):
        return tuple(fixed(one.shape) for one in cast("Sequence[Tensor]", result))
    return fixed(result.shape if isinstance(result, Tensor) else ())  # a number that was looked at


@rule(*SHAPE_ONLY, sees_deferred=True)
@rule(*SCALE_FREE)
def _scale_free(context: Context, *_: object, **__: object) -> Result:
    return fixed(context.shape) if isinstance(context.operation.result, Tensor) else None


@rule("full", "full_like", "new_full", "scalar_tensor", sees_deferred=True)
def _full(context: Context, *arguments: object, **_: object) -> Result:
    numbers = [argument for argument in arguments if isinstance(argument, int | float)]
    return anything(context.shape) if numbers[-1] in (0, -math.inf) else fixed(context.shape)


@rule("bernoulli")
def _bernoulli(context: Context, probability: Form, *_: object, **__: object) -> Result:
    context.system.pin(probability)
    return fixed(context.shape)


@rule(*ZEROS, sees_deferred=True)
def _zeros(context: Context, *_: object, **__: object) -> Result:
    return anything(context.shape)


@rule("glu")
def _glu(context: Context, form: Form, axis: int = -1) -> Result:
    """The first half times a sigmoid of the second."""
    first, second = (move(form, lambda ids, half=half: ids.chunk(2, axis)[half]) for half in (0, 1))
    context.system.pin(second)
    return first


@rule("prelu", "_prelu_kernel")
def _prelu(context: Context, form: Form, slope: Form) -> Result:
    context.system.pin(slope)
    return form


@rule("clamp")
def _clamp(context: Context, form: Form, min: object = None, max: object = None) -> Result:
    return _below(context, _above(context, form, min), max)


@rule("clamp_min")
def _above(context: Context, form: Form, bound: Any) -> Form:
    if isinstance(bound, Form):
        return context.system.same(form, bound)
    return form if bound is None or context.is_guard(bound, form, bound=True) else context.system.pin(form)


@rule("clamp_max")
def _below(context: Context, form: Form, bound: object) -> Form:
    if isinstance(bound, Form):
        return context.system.same(form, bound)
    return form if bound is None or bound == 0 else context.system.pin(form)


@rule("gt", "lt", "ge", "le", "eq", "ne")
def _compare(context: Context, one: Form, other: object) -> Result:
    if isinstance(other, Form):
        context.system.same(one, other)
    elif other != 0:
        context.system.pin(one)
    return fixed(context.shape)


@rule("view_as_complex")
def _joined(context: Context, form: Form) -> Result:
    """Pairs along the last axis become one number: both parts scale alike."""
    tied = context.system.alike_along(form, [-1])
    return move(tied, lambda ids: ids.squeeze(-1))


@rule("view_as_real")
def _apart(context: Context, form: Form) -> Result:
    return Form(context.shape, tuple(term.unsqueeze(-1) for term in form.terms))


@rule("complex")
def _complex(context: Context, real: Form, imaginary: Form) -> Result:
    return context.system.same(real, imaginary)


@rule("polar")
def _polar(context: Context, length: Form, angle: Form) -> Result:
    context.system.pin(angle)
    return context.system.combine([(length, 1)], context.shape)


@rule("_fft_r2c", "_fft_c2c", "_fft_c2r")
def _fourier(context: Context, form: Form, axes: Sequence[int], *_: object) -> Result:
    """Sums over these axes with fixed weights, for every frequency."""
    tied = context.system.const_along(form, axes)
    return Form(context.shape, tied.terms)
