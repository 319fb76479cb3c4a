"""Pooling and resampling: the scale may not vary within a window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from symoptim.symmetry.form import ANYTHING, Deferred, Form, fixed, varying
from symoptim.symmetry.rules.registry import CannotTell, Context, Result, rule
from symoptim.symmetry.tensors import different_values, squeezed

AXES = {"1d": 1, "2d": 2, "3d": 3}
RESAMPLING = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_unpool2d max_unpool3d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_bicubic2d "
    "upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa fractional_max_pool2d"
).split()


def spatial_axes(context: Context) -> int:
    """Number of axes an operation slides over, by its name."""
    return next(count for part, count in AXES.items() if part in context.operation.name)


def with_indices(context: Context, form: Form) -> Result:
    """A result that may come with the places of its maxima."""
    if isinstance(context.operation.result, Tensor):
        return form
    return form, fixed(form.shape)


@rule(*RESAMPLING)
def _resample(context: Context, form: Form, *_: object, **__: object) -> Result:
    count = spatial_axes(context)
    tied = context.system.const_along(form, range(-count, 0))
    return with_indices(context, Form(context.shape, tied.terms))


@rule(
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool1d_with_indices",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    sees_deferred=True,
)
def _pool(
    context: Context,
    form: Form,
    kernel: object,
    stride: object = None,
    padding: object = 0,
    *rest: object,
    **keywords: object,
) -> Result:
    kept = _passed_on(context, form, padding, rest, keywords)
    seen = replace(
        form, addends=tuple(one for one in form.addends if not any(one is other for other in kept))
    )
    found = _pooled(context, context.system.settle(seen), kernel, stride, padding, *rest, **keywords)
    return replace(found, addends=kept) if kept and isinstance(found, Form) else found


def _passed_on(
    context: Context, form: Form, padding: object, rest: Sequence[object], keywords: Mapping[str, object]
) -> tuple[Deferred, ...]:
    """Summands that a mean over windows leaves as they are: a bias is the same everywhere in them."""
    count = spatial_axes(context)
    names = ("ceil_mode", "count_include_pad", "divisor_override")
    given = {**dict(zip(names, rest, strict=False)), **keywords}
    beside = any(listed(padding, count)) and given.get("count_include_pad", True)
    if "avg" not in context.operation.name or beside or given.get("divisor_override") is not None:
        return ()
    varied = varying(form, form.addends, range(-count, 0)) if form.shape == context.shape else form.addends
    return tuple(one for one in form.addends if not any(one is other for other in varied))


def _pooled(
    context: Context,
    form: Form,
    kernel: object,
    stride: object = None,
    padding: object = 0,
    *rest: object,
    **keywords: object,
) -> Result:
    count = spatial_axes(context)
    single = context.system.single(form)
    if not any(size > 1 for term in single.terms for size in term.shape[-count:]):
        return with_indices(context, Form(context.shape, single.terms))
    if "max" in context.operation.name:
        dilation = keywords.get("dilation", rest[0] if rest else 1)
        if any(step != 1 for step in listed(dilation, count)):
            raise CannotTell
    steps = listed(stride or kernel, count)
    ids = _windows(single.ids(), context.shape, listed(kernel, count), steps, listed(padding, count))
    if not set(different_values(single.ids())) <= set(different_values(ids)):
        return _resample(context, form)  # a place in no window goes with the others: longer inputs see it
    tied = context.system.const_along(Form(tuple(ids.shape), (ids,)), range(-count, 0))
    terms = tuple(squeezed(term.reshape(term.shape[:-count]).expand(context.shape)) for term in tied.terms)
    return with_indices(context, Form(context.shape, terms))


def listed(value: Any, count: int) -> list[int]:
    """One number per axis."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * count if len(numbers) == 1 else numbers


def _windows(
    ids: Tensor, shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """Ids of the elements of every window, along new last axes; sizes may be rounded up."""
    count = len(kernel)
    sizes = zip(ids.shape[-count:], shape[-count:], kernel, stride, padding, strict=True)
    after = [
        max(0, (wanted - 1) * step + width - size - before) for size, wanted, width, step, before in sizes
    ]
    around = [size for pair in zip(reversed(padding), reversed(after), strict=True) for size in pair]
    ids = pad(ids, around, value=ANYTHING)
    for axis, (size, step) in enumerate(zip(kernel, stride, strict=True), start=ids.dim() - count):
        ids = ids.unfold(axis, size, step)
    return ids[tuple(slice(0, size) for size in shape)]
