"""One copy of a model for many trials, one after the other: to make a copy takes longer than to call it."""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.symmetry.copies import copied, isolated, keeps_closures
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import model_tensors

LARGE = 300.0
"""Log-scales of which the exponentials have a product in float64."""


class Reused:
    """A copy that has the values of its model again whenever it is asked for, and Python state of its own.

    Calls may have written to its tensors, and acting on it has. Where values cannot be brought back, for a
    call has put other tensors there, or a closure keeps some, it is copied anew.
    """

    def __init__(self, model: nn.Module, *, wide: bool) -> None:
        """Copy nothing yet; ``wide`` copies are of float64."""
        self.model, self.wide = model, wide
        self.always_anew = keeps_closures(model)
        self.whole: nn.Module | None = None
        self.tensors: list[_Kept] = []
        self.memory: list[tuple[Tensor, Tensor]] = []
        """Of the copy and of the model, each as a vector."""

    @torch.no_grad()
    def fresh(self) -> nn.Module:
        """The copy as the model is now; what was returned earlier must not be used any more.

        >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> reused = Reused(model, wide=True)
        >>> one = reused.fresh()
        >>> _ = one(torch.ones(3, 2).double()), one[0].weight.data.zero_()
        >>> other = reused.fresh()
        >>> other[0].weight is one[0].weight, torch.equal(other[0].weight, model[0].weight.double())
        (True, True)
        >>> int(other[1].num_batches_tracked)
        0
        """
        if self.always_anew:
            return copied(self.model, wide=self.wide)
        if self.whole is None or not all(kept.is_there() for kept in self.tensors):
            self.whole = None  # its memory is free before there is another
            self.whole = self._copied()
        else:
            for mine, own in self.memory:
                mine.copy_(own)
            for kept in self.tensors:
                kept.tensor.grad = None
                kept.tensor.requires_grad_(kept.asks)
        return isolated(self.whole)

    def _copied(self) -> nn.Module:
        """A copy, of which it is noted what and where its tensors are."""
        self.tensors, self.memory = [], []
        with cast("Any", torch).inference_mode(False):  # it may be differentiated later
            whole = copied(self.model, wide=self.wide)
        own, places = model_tensors(self.model), dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]]()
        for name, tensor in model_tensors(whole).items():
            if tensor.layout != torch.strided or type(tensor) not in (Tensor, nn.Parameter):
                self.always_anew = True
            elif tensor.numel() and not tensor.is_meta:
                both = _all_of(tensor), _all_of(own[name])
                self.always_anew |= both[0].shape != both[1].shape
                places[tensor.untyped_storage().data_ptr(), tensor.dtype] = both
                self.tensors.append(_Kept.of(tensor))
        self.memory = list(places.values())
        return whole


class _Kept(NamedTuple):
    """A tensor of a copy, and how it was."""

    tensor: Tensor
    form: tuple[object, ...]
    asks: bool
    """Whether it required gradients."""

    @staticmethod
    def of(tensor: Tensor) -> "_Kept":
        """A tensor, as it is now."""
        return _Kept(tensor, _form(tensor), tensor.requires_grad)

    def is_there(self) -> bool:
        """Whether values can be brought back: it is in the same memory, and no result of operations."""
        return _form(self.tensor) == self.form


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.grad_fn is None


def _all_of(tensor: Tensor) -> Tensor:
    """All that is in a tensor's memory, as a vector."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)


@torch.no_grad()
def act(spec: SymmetrySpec, model: nn.Module, element: Tensor) -> None:
    """Act with an element on a copy in float64, factor by factor: nothing as large as a weight is made.

    Args:
        spec: the group.
        model: a copy of its model.
        element: log-scales.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    >>> spec = discover(model, (torch.rand(5, 3).double(),))
    >>> one, other = copied(model, wide=True), copied(model, wide=True)
    >>> act(spec, one, spec.random())
    >>> torch.allclose(one[2].weight, spec.rescale_(other, spec.random())[2].weight, rtol=1e-15)
    True
    """
    there = model_tensors(model)
    for name, terms in spec.log_terms(element).items():
        for factor in _factors([term for term in terms if bool(term.any())]):
            there[name].mul_(factor.to(there[name].device))


def _factors(terms: list[Tensor]) -> Iterable[Tensor]:
    """Exponentials of log-scales that add up, which are finite wherever that of their sum is."""
    if sum(float(term.abs().max()) for term in terms) <= LARGE:
        return [term.exp() for term in terms]
    return [sum(terms[1:], terms[0]).exp()]
