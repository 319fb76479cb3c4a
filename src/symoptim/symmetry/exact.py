"""Calls of copies of a model, in float64 and with the same random numbers, that leave nothing behind."""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.errors import TraceError
from symoptim.symmetry.copies import WIDER, copied
from symoptim.symmetry.graph import name_of
from symoptim.symmetry.isolation import seeds_restored, set_seeds
from symoptim.symmetry.tensors import model_tensors, tensors_in

NO_EPS = 1e-30  # torch refuses zero in training mode
MULTIPLYING = ("mul", "div", "mul_", "div_", "true_divide")
"""Operations that add no eps: a factor of the same value stays."""
ROUNDING = (torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps)
"""What ``nn.RMSNorm`` adds by default, in float32 and in float64: copies in float64 add the former."""
FRESH = ("lift_fresh", "lift_fresh_copy")
"""What torch.tensor(...) comes through."""
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of a call."""


class Trial:
    """A copy of a model, to be acted on in place and called.

    In it constants in ``ignored`` are too small to be felt; tensors of the model itself that its calls read,
    in ways that no copy can follow, are noted in ``shared``.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        wide: bool = True,
        ignored: Collection[float] = (),
        watched: Mapping[str, Tensor],
        own: nn.Module | None = None,
    ) -> None:
        """Make the copy, in float64 if it is to be ``wide``, or take ``own``.

        ``watched`` are the model's own tensors, by name.
        """
        self.model = copied(model, wide=wide) if own is None else own
        self.wide, self.ignored = wide, ignored
        self.narrow = wide and any(one.dtype in WIDER for one in model_tensors(model).values())
        self.shared: set[str] = set()
        self.memory = {
            tensor.untyped_storage().data_ptr(): name for name, tensor in watched.items() if tensor.numel()
        }

    def given(self, arguments: Arguments) -> Arguments:
        """Copies of arguments."""
        positional, keywords = tree_map(self._given, (arguments[0], dict(arguments[1])))
        return positional, keywords

    def _given(self, value: Any) -> Any:
        new = value.detach().clone() if isinstance(value, Tensor) else value
        return _widened(new) if self.wide else new

    @contextmanager
    def exactly(self) -> Generator[None]:
        """Compute in float64; random numbers are the same each time."""
        with same_randomness(), _Exact(self):
            yield

    def returned(self, arguments: Arguments) -> list[Tensor]:
        """Everything a call returns."""
        found = tensors_in(self.model(*arguments[0], **arguments[1]))
        if not found:
            raise TraceError("the model returns no tensors: there is nothing to compare")
        return found

    @torch.no_grad()
    def calls(self, arguments: Arguments, count: int = 2) -> list[Tensor]:
        """Everything that calls one after the other return and write into their arguments."""
        arguments, found = self.given(arguments), list[Tensor]()
        for _ in range(count):
            with self.exactly():
                found += [dense(one).clone() for one in self.returned(arguments)]
        given: list[Any] = tree_leaves(arguments)
        return found + [dense(one) for one in given if isinstance(one, Tensor)]


def dense(tensor: Tensor) -> Tensor:
    """The same values in an ordinary tensor."""
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


@contextmanager
def same_randomness() -> Generator[None]:
    """Seed the generators of Python, numpy and torch with a fixed number, and bring their states back.

    One thread at a time, for all share these generators.
    """
    with seeds_restored():
        set_seeds(0)
        yield


def difference(before: list[Tensor], after: list[Tensor]) -> float:
    """Largest change, each tensor measured by its largest entry; NaN that appears is the worst of all."""
    if [one.shape for one in before] != [one.shape for one in after]:
        return float("inf")
    worst = 0.0
    for old, new in zip((one.detach() for one in before), (one.detach() for one in after), strict=True):
        same = (old == new) | (old.isnan() & new.isnan())
        if bool(same.all()):
            continue
        if not (old.is_floating_point() or old.is_complex()):
            return float("inf")
        finite = old[old.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        error = float((new - old)[~same].abs().max()) / (scale or 1.0)
        worst = max(worst, error if error == error else float("inf"))
    return worst


class _Exact(TorchDispatchMode):
    """Makes in float64 what is asked for in fewer digits: many models compute their norms in float32."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.ignored, self.wide, self.narrow = frozenset(trial.ignored), trial.wide, trial.narrow
        self.memory, self.shared = trial.memory, trial.shared

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        multiplies = name_of(func) in MULTIPLYING

        def exact(value: Any) -> Any:
            return self._exact(value, multiplies)

        arguments, named = tree_map(exact, (tuple(args), dict(kwargs or {})))
        try:
            result = func(*arguments, **named)
        except RuntimeError:  # an argument may be of numbers that were made elsewhere, in float32
            if not self.wide or func._schema.is_mutable:
                raise
            wider, named_wider = tree_map(_widened, (arguments, named))
            return func(*wider, **named_wider)
        made = name_of(func) in FRESH or not any(isinstance(one, Tensor) for one in tree_leaves(arguments))
        return tree_map(_widened, result) if self.wide and made else result

    def _exact(self, value: Any, multiplies: bool) -> Any:
        if isinstance(value, Tensor):
            self._note(value)
        elif self.wide and isinstance(value, torch.dtype):
            return WIDER.get(value, value)
        elif isinstance(value, float) and not multiplies:
            if value in self.ignored or (self.ignored and value in ROUNDING):
                return NO_EPS
            if self.narrow and value == ROUNDING[1]:
                return ROUNDING[0]
        return value

    def _note(self, tensor: Tensor) -> None:
        if self.memory and tensor.layout == torch.strided and type(tensor) in (Tensor, nn.Parameter):
            name = self.memory.get(tensor.untyped_storage().data_ptr())
            self.shared.update([name] if name is not None else [])


def _widened(value: Any) -> Any:
    return value.to(WIDER[value.dtype]) if isinstance(value, Tensor) and value.dtype in WIDER else value
