"""Copies of one model in float64, rescaled or not, called alike: by how much their outputs differ."""

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.errors import SymmetryError, TraceError
from symoptim.symmetry.copies import WIDER, copied
from symoptim.symmetry.environment import seeds_restored, set_seeds
from symoptim.symmetry.failures import described
from symoptim.symmetry.graph import name_of
from symoptim.symmetry.limits import is_out_of_memory
from symoptim.symmetry.reused import Reused, act
from symoptim.symmetry.spec import SymmetrySpec
from symoptim.symmetry.tensors import model_tensors, on_cpu, tensors_in
from symoptim.symmetry.variations import Arguments

NO_EPS = 1e-30  # torch refuses zero in training mode
MULTIPLYING = ("mul", "div", "mul_", "div_", "true_divide")
"""Operations that add no eps: a factor of the same value stays."""
ROUNDING = (torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps)
"""What ``nn.RMSNorm`` adds by default, in float32 and in float64: copies in float64 add the former."""
FRESH = ("lift_fresh", "lift_fresh_copy")
"""What torch.tensor(...) comes through."""


class Trial:
    """A copy of a model, to be acted on in place and called.

    In it constants in ``ignored`` are negligible; tensors of the model itself that its calls read,
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

    def _given(self, value: object) -> Any:
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

        def exact(value: object) -> Any:
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

    def _exact(self, value: object, multiplies: bool) -> Any:
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


def _widened(value: object) -> Any:
    return value.to(WIDER[value.dtype]) if isinstance(value, Tensor) and value.dtype in WIDER else value


NUDGE = 1e-12
"""Relative change of weights that shows how much rounding is magnified."""


class Outputs(NamedTuple):
    """What two calls of a copy return, and one after ``.eval()``, for a model in training mode."""

    calls: list[Tensor]
    evaluated: list[Tensor]


class Change(NamedTuple):
    """By how much outputs differ, relative to their size."""

    calls: float
    evaluated: float


class Trials:
    """Trials of a group on a model, in float64 (``wide``) or in the model's own precision.

    The copies are in the mode of the model, or in that of ``modes``. Each trial has one of its own, or all
    have the one that is to be ``reused``, one after the other.
    """

    def __init__(
        self,
        spec: SymmetrySpec,
        model: nn.Module,
        *,
        wide: bool,
        modes: Mapping[str, bool] | None = None,
        reused: Reused | None = None,
    ) -> None:
        """Note which tensors move."""
        self.spec, self.model, self.wide, self.modes, self.reused = spec, model, wide, modes, reused
        there = spec.require_model(model)
        scales = spec.log_terms(spec.random()).items()
        self.moved = {name: there[name] for name, terms in scales if any(bool(one.any()) for one in terms)}
        self.training = any(module.training for module in model.modules())
        self.notes: dict[str, None] = {}

    def passing(self, passing: float) -> float:
        """Errors below this are rounding, given what counts as it in float64."""
        if self.wide:
            return passing
        types = {tensor.dtype for tensor in model_tensors(self.model).values() if tensor.is_floating_point()}
        coarse = max((torch.finfo(one).eps for one in types), default=0.0)
        return min(max(100 * coarse, passing), 1e-3)

    def trial(self, element: Tensor | None = None, *, ignored: Collection[float] = ()) -> Trial:
        """A copy, acted on with an element."""
        own = None if self.reused is None else self.reused.fresh()
        trial = Trial(self.model, wide=self.wide, ignored=ignored, watched=self.moved, own=own)
        for name, mode in (self.modes or {}).items():
            trial.model.get_submodule(name).train(mode)
        if element is not None and self.wide and own is not None:
            act(self.spec, trial.model, element)
        elif element is not None:
            self.spec.rescale_(trial.model, element, tolerance=math.inf)
        return trial

    def outputs(
        self,
        arguments: Arguments,
        element: Tensor | None = None,
        *,
        ignored: Collection[float] = (),
        calls: int = 2,
    ) -> Outputs:
        """What calls of a copy return; after several of a model in training mode also in evaluation mode.

        Raises:
            SymmetryError: calls of a copy read weights of the model itself.
        """
        return self._outputs(self.trial(element, ignored=ignored), arguments, calls)

    def _outputs(self, trial: Trial, arguments: Arguments, calls: int) -> Outputs:
        found = trial.calls(arguments, calls)
        evaluated: list[Tensor] = []
        if self.training and calls > 1:
            trial.model.eval()
            try:
                evaluated = trial.calls(arguments, 1)
            except Exception as failure:  # it may be a mode the model has never been in: that is said
                self.notes[f"evaluation mode could not be tried ({described(failure)})"] = None
        if trial.shared:
            raise SymmetryError(
                f"the model also reads '{min(trial.shared)}' by a second way that a copy does not have (a "
                "closure, a global name): let it read the parameter of its module"
            )
        return Outputs(found, evaluated)

    def change(
        self,
        before: Outputs,
        arguments: Arguments,
        element: Tensor,
        *,
        ignored: Collection[float] = (),
        calls: int = 2,
    ) -> Change:
        """By how much outputs differ after acting with an element; infinite if the copy cannot be called."""
        trial = self.trial(element, ignored=ignored)
        try:
            after = self._outputs(trial, arguments, calls)
        except SymmetryError:
            raise
        except Exception as failure:  # whatever else it is, the copies differ
            if is_out_of_memory(failure):
                raise
            self.notes[f"a rescaled copy cannot be called ({described(failure)})"] = None
            return Change(math.inf, 0.0)
        known = min(len(before.evaluated), len(after.evaluated))
        return Change(
            difference(before.calls, after.calls),
            difference(before.evaluated[:known], after.evaluated[:known]),
        )

    def rounding(self, before: Outputs, arguments: Arguments, *, ignored: Collection[float]) -> float:
        """By how much rounding may change outputs: a hundred times what a nudge of the weights does."""
        if not self.wide:
            return 0.0
        trial = self.trial(ignored=ignored)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in trial.model.parameters():
                if parameter.is_floating_point():
                    drawn = torch.randn(
                        parameter.shape, generator=generator, dtype=torch.float64, device="cpu"
                    )
                    parameter.mul_((1 + NUDGE * drawn).to(parameter.device))
        after = self._outputs(trial, arguments, 2)
        change = max(difference(before.calls, after.calls), difference(before.evaluated, after.evaluated))
        return min(100 * change, 1e-6)

    def products(
        self, arguments: Arguments, element: Tensor | None = None, *, ignored: Collection[float] = ()
    ) -> dict[str, Tensor] | None:
        """Weights times gradients of a random loss of the outputs; None where there are no gradients."""
        spec = self.spec
        with cast("Any", torch).inference_mode(False), torch.enable_grad():
            trial = self.trial(element, ignored=ignored)
            named = {spec.aliases.get(name, name): one for name, one in trial.model.named_parameters()}
            leaves = {name: one.requires_grad_() for name, one in named.items() if name in spec.tensors}
            try:
                with trial.exactly():  # also what is computed anew in the backward pass (checkpoints)
                    loss = _random_loss(trial.returned(_with_gradients(trial.given(arguments))))
                    if loss is not None:
                        cast("Any", loss).backward()
            except RuntimeError as failure:  # it writes to what the backward pass needs, or there is none
                if is_out_of_memory(failure):
                    raise
                return None
        gradients = ((name, leaf, leaf.grad) for name, leaf in leaves.items())
        return {name: _product(leaf, grad) for name, leaf, grad in gradients if grad is not None}


def _product(leaf: Tensor, gradient: Tensor) -> Tensor:
    """A weight times its gradient, which may be sparse."""
    return (leaf * dense(gradient)).detach()


def _with_gradients(arguments: Arguments) -> Arguments:
    """Arguments that ask for gradients: without, checkpoints of the older kind have none at all."""

    def asking(value: object) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.layout != torch.strided:
            return value
        return value.requires_grad_().clone()  # no leaf: the model may write into it

    positional, keywords = tree_map(asking, (arguments[0], dict(arguments[1])))
    return positional, keywords


@on_cpu
def _random_loss(outputs: list[Tensor]) -> Tensor | None:
    """The sum of outputs times random numbers, each relative to its size; None where no gradient flows."""
    generator = torch.Generator().manual_seed(0)
    terms: list[Tensor] = []
    for one in outputs:
        if one.requires_grad and one.is_floating_point():
            drawn = torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one)
            finite = one.detach()[one.detach().isfinite()].abs()
            size = float(finite.max()) if finite.numel() else 0.0
            terms.append((one * drawn).sum() / (size or 1.0))
    return sum(terms[1:], terms[0]) if terms else None


def powers_of_two(spec: SymmetrySpec, element: Tensor) -> Tensor:
    """The element nearest to one whose factors are powers of two, and none of which is 1.

    >>> from symoptim.symmetry.discover import discover
    >>> model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    >>> element = powers_of_two(discover(model, (torch.rand(5, 3),)), torch.tensor([1.0, -0.1]))
    >>> (element / math.log(2)).tolist()
    [1.0, -1.0]
    """
    values = spec.exponents.values.double()
    step = next((d for d in range(1, 13) if bool((values * d == (values * d).round()).all())), 1) * math.log(
        2
    )
    away = torch.where(element < 0, -1.0, 1.0).double()
    steps = (element.double() / step).round()
    return step * torch.where(steps == 0, away, steps)
