"""Matrix products and convolutions: products, summed over an axis along which their scale may not vary.

Axis letters: o output, k input of a product; g group of a convolution.
"""

import math

import torch
from torch import Tensor

from symoptim.symmetry.form import Deferred, Form
from symoptim.symmetry.rules.arithmetic import plus
from symoptim.symmetry.rules.registry import Context, Result, rule
from symoptim.symmetry.system import System, move
from symoptim.symmetry.tensors import aligned, broadcast_shape, squeezed


def contract(system: System, one: Form, other: Form) -> Form:
    """Form of ``one (..., m, k) @ other (..., k, n)``.

    A summand of either side becomes one of the product: ``q (k + c)`` is ``q k + q c``, and somebody behind
    it, such as a softmax, may not see the second part.
    """
    axes = max(len(one.shape), len(other.shape))
    lead = broadcast_shape(one.shape[:-2], other.shape[:-2])
    shape = (*lead, one.shape[-2], one.shape[-1], other.shape[-1])
    terms = [aligned(term, axes).unsqueeze(-1) for term in one.terms]
    terms += [aligned(term, axes).unsqueeze(-3) for term in other.terms]
    tied = system.const_along(Form(shape, tuple(terms)), [-2])
    product = move(tied, lambda ids: ids.squeeze(-2))
    return Form(product.shape, product.terms, _passed_on(system, one, other, product.shape))


def _passed_on(system: System, one: Form, other: Form, shape: tuple[int, ...]) -> tuple[Deferred, ...]:
    """Summands of the right factor, times the left one."""
    if one.addends:
        raise ValueError("summands of the left factor have to be merged before")
    found: list[Deferred] = []
    for addend in other.addends:
        varies = [1] * len(shape)
        spread = aligned(addend.spread, len(shape))
        for axis in range(len(shape)):
            # It varies with the rows of the left factor, and where the summand itself does.
            if axis != len(shape) - 1 or spread.shape[-1] > 1:
                varies[axis] = shape[axis]
        numbers = torch.arange(math.prod(varies)).reshape(varies)
        found.append(Deferred(numbers, lambda addend=addend: contract(system, one, addend.merge())))
    return tuple(found)


def _matrix(form: Form, *, row: bool) -> Form:
    """A vector as a matrix of one row, or of one column."""
    if len(form.shape) > 1:
        return form
    return move(form, lambda ids: ids.unsqueeze(0 if row else 1))


@rule("mm", "bmm", "matmul", "mv", "dot", "vdot", sees_deferred=True)
def _matmul(context: Context, one: Form, other: Form) -> Result:
    one = context.system.settle(one)
    other = context.system.settle(other) if other.factors else other
    product = contract(context.system, _matrix(one, row=True), _matrix(other, row=False))
    return move(product, lambda ids: ids.reshape(context.shape))


@rule("addmm", "baddbmm", sees_deferred=True)
def _addmm(context: Context, added: Form, one: Form, other: Form, **_: object) -> Result:
    other = context.system.settle(other) if other.factors else other
    return plus(context, contract(context.system, context.system.settle(one), other), added)


@rule("linear")
def _linear(context: Context, inputs: Form, weight: Form, bias: Form | None = None) -> Result:
    transposed = move(weight, lambda ids: ids.t())
    product = contract(context.system, _matrix(inputs, row=True), transposed)
    product = move(product, lambda ids: ids.reshape(context.shape))
    return product if bias is None else plus(context, product, bias)


@rule("conv1d", "conv2d", "conv3d")
def _convolution(
    context: Context,
    inputs: Form,
    weight: Form,
    bias: Form | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Result:
    return convolve(context, inputs, weight, bias, groups)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed_convolution(
    context: Context,
    inputs: Form,
    weight: Form,
    bias: Form | None = None,
    stride: object = 1,
    padding: object = 0,
    output_padding: object = 0,
    groups: int = 1,
    dilation: object = 1,
) -> Result:
    return convolve(context, inputs, _turned(weight, groups), bias, groups)


@rule("convolution", "_convolution")
def _any_convolution(
    context: Context,
    inputs: Form,
    weight: Form,
    bias: Form | None,
    stride: object,
    padding: object,
    dilation: object,
    transposed: bool,
    output_padding: object,
    groups: int,
    *_: object,
) -> Result:
    turned = _turned(weight, groups) if transposed else weight
    return convolve(context, inputs, turned, bias, groups)


def _turned(weight: Form, groups: int) -> Form:
    """Weights ``(g k, o / g, ...)`` of a transposed convolution as those of an ordinary one."""

    def turn(ids: Tensor) -> Tensor:
        apart = ids.reshape(groups, ids.shape[0] // groups, *ids.shape[1:]).transpose(1, 2)
        return apart.reshape(-1, *apart.shape[2:])

    return move(weight, turn)


def convolve(context: Context, inputs: Form, weight: Form, bias: Form | None, groups: int) -> Form:
    """Form of a convolution with weights ``(o, k / g, ...)``: windows mix places, channels are summed."""
    count = len(weight.shape) - 2
    single = len(inputs.shape) == count + 1  # without an axis of images
    images = move(inputs, lambda ids: ids.unsqueeze(0)) if single else inputs
    tied = context.system.const_along(images, range(-count, 0))
    summed = _summed_over_channels(context.system, tied, weight, groups)
    outputs = weight.shape[0]
    full = (tied.shape[0], groups, outputs // groups)
    product = Form(
        (tied.shape[0], outputs, *context.shape[-count:]),
        tuple(
            squeezed(term.reshape(term.shape[:3]).expand(full).reshape(full[0], outputs, *[1] * count))
            for term in summed.terms
        ),
    )
    product = product if bias is None else _with_bias(product, bias)
    return move(product, lambda ids: ids.squeeze(0)) if single else product


def _summed_over_channels(system: System, inputs: Form, weight: Form, groups: int) -> Form:
    """Form ``(images, g, o / g, 1, 1 ...)`` of inputs that are alike at all places, times weights."""
    count, outputs, channels = len(weight.shape) - 2, weight.shape[0], inputs.shape[1]
    shape = (inputs.shape[0], groups, outputs // groups, channels // groups, *weight.shape[2:])
    terms = [
        squeezed(term.expand(weight.shape).reshape(1, groups, outputs // groups, *weight.shape[1:]))
        for term in weight.terms
    ]
    terms += [
        squeezed(
            term.expand(term.shape[0], channels, *[1] * count).reshape(
                term.shape[0], groups, 1, channels // groups, *[1] * count
            )
        )
        for term in inputs.terms
    ]
    return system.const_along(Form(shape, tuple(terms)), range(3, 4 + count))


def _with_bias(product: Form, bias: Form) -> Form:
    """The bias of every output channel, merged when somebody sees it."""
    around = [1] * (len(product.shape) - 2)
    merged = Form(product.shape, tuple(term.reshape(1, -1, *around) for term in bias.terms))
    spread = torch.arange(product.shape[1]).reshape(1, -1, *around)
    return Form(product.shape, product.terms, (Deferred(spread, lambda: merged),))
