"""What modules would pass to each other if a decision were another one.

The passes of :mod:`.paths` show one answer to some questions that Python asks. To see what would become known
to other modules, the example is run again, and the first answer that a line of code gets in each module is
replaced: the other truth value, another number, another number of rows. What the pass then computes is no
value of the model, and is thrown away. Which modules get something of another form is kept; the pass may also
fail halfway.
"""

import inspect
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from symoptim.symmetry import limits
from symoptim.symmetry.decisions import ASKS, MASKS, about_values
from symoptim.symmetry.environment import set_seeds
from symoptim.symmetry.frames import Calls, Form, Way, around
from symoptim.symmetry.graph import name_of
from symoptim.symmetry.record import Series, record
from symoptim.symmetry.variations import Call

_tensor: Any = Tensor  # torch leaves some of its methods untyped
_torch: Any = torch
ASKS_FOR_SIZES = {
    _tensor.shape.__get__,
    _tensor.size,
    _tensor.__len__,
    _tensor.numel,
    _tensor.nelement,
    _tensor.unbind,
    _tensor.__iter__,
    _torch.numel,
    _torch.unbind,
}
"""Functions by which Python code gets to know how large a tensor is."""
MASKED = ("index", "masked_select")
"""Operations that choose where a mask is true."""
MOST_PASSES = 16
"""Passes with other answers; each takes as long as any other."""
LIBRARIES = tuple(str(Path(str(file)).parent) for file in (torch.__file__, __file__))
"""Where code is that asks for others."""


class Informed(NamedTuple):
    """What became known."""

    modules: frozenset[str]
    """Those that would get something else, or be returned it."""
    asking: frozenset[str]
    """Those that ask for sizes."""


class Question(NamedTuple):
    """A line of code that asks for a value, or for as many results as values tell, in a module."""

    place: str
    line: tuple[str, int]
    variants: int
    """How many other answers are tried."""


def informed_by_other_answers(
    model: nn.Module, call: Call, places: Collection[str], series: Series, *, restore: bool = True
) -> Informed:
    """Modules that would get something else, or be returned it, if a decision were another one.

    Args:
        model: a copy of the network with state of its own.
        call: the example.
        places: modules in which something is decided.
        series: what passes share.
        restore: whether to bring back tensors in attributes of modules.

    Returns:
        These modules, and those that ask for sizes.
    """
    passes = _Passes(model, call, series, restore)
    asked = passes.asked(places)
    modules = set[str]()
    for line, variant in _in_turns(asked):
        there = [one.place for one in asked if one.line == line]
        if not passes.replace_answer(line, variant, there, modules) and len(there) > 1:
            for place in there:  # the pass has ended at one of them
                passes.replace_answer(line, variant, [place], modules)
    return Informed(frozenset(modules), frozenset(passes.asking))


def _in_turns(asked: list[Question]) -> Iterator[tuple[tuple[str, int], int]]:
    """Each line once with the first of its other answers, then with further ones."""
    variants = {one.line: one.variants for one in asked}
    for variant in range(max(variants.values(), default=0)):
        yield from ((line, variant) for line, count in variants.items() if variant < count)


class _Passes:
    """Passes on the example with one answer replaced, and what they show."""

    def __init__(self, model: nn.Module, call: Call, series: Series, restore: bool) -> None:
        self.model, self.call, self.series, self.restore = model, call, series, restore
        self.calls = Calls(model)
        self.asking: set[str] = set()
        self.base: dict[Way, set[Form]] = {}
        self.left = MOST_PASSES

    def asked(self, places: Collection[str]) -> list[Question]:
        """Questions about values in these modules, each once."""
        answers = _Answers(self.calls)
        graph = self._run(answers)
        self.base = self.calls.now
        if graph is None:
            return []
        operations, values = (
            [one for one in graph.operations if _hands_over(one.function)],
            about_values(graph),
        )
        found = answers.asked
        if len(operations) == len(found):  # else all of them, whatever they ask for
            found = [one for one, about in zip(found, operations, strict=True) if about.index in values]
        inside = {around(place, self.calls.called) for place in places}
        return [one for one in dict.fromkeys(found) if one.place in inside]

    def replace_answer(
        self, line: tuple[str, int], variant: int, places: list[str], modules: set[str]
    ) -> bool:
        """Replace the first answer at a line in each place; false if the pass fails."""
        if self.left == 0:
            return True
        self.left -= 1
        graph = self._run(_Answers(self.calls, line, variant, places))
        modules |= set(self._others())
        return graph is not None

    def _run(self, answers: "_Answers") -> Any:
        """The graph of a pass, or None if it fails."""
        set_seeds(1)
        call = self.call.changed(lambda _, tensor: tensor.detach().clone())
        try:
            with self.calls.noted(), _SizesAsked(self.calls, self.asking), answers:
                return record(self.model, *call, self.series, functional=False, restore=self.restore)
        except Exception:  # of whatever kind: the answer does not go with the values
            return None

    def _others(self) -> Iterator[str]:
        """Modules that got something else than before, or were returned it."""
        for way, forms in self.calls.now.items():
            base = self.base.get(way, forms)  # that a module is called at all tells it nothing
            kinds = {form[:2] for form in forms} - {form[:2] for form in base}
            if kinds or (way.end in self.asking and not forms <= base):
                yield way.end


class _SizesAsked(TorchFunctionMode):
    """Notes modules whose own code asks for sizes; torch's functions may do so."""

    def __init__(self, calls: Calls, asking: set[str]) -> None:
        super().__init__()
        self.calls, self.asking = calls, asking

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ASKS_FOR_SIZES and not _by_us():
            self.asking.add(_at_work(self.calls))
        return func(*args, **(kwargs or {}))


class _Answers(TorchDispatchMode):
    """Notes questions in order, and gives other answers to some."""

    def __init__(
        self, calls: Calls, line: tuple[str, int] = ("", 0), variant: int = 0, places: Collection[str] = ()
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.calls, self.line, self.variant, self.left = calls, line, variant, set(places)
        self.asked: list[Question] = []
        self.masks: dict[int, tuple[Tensor, Tensor]] = {}
        """Masks that were changed, by identity, and what they were changed to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.masks:  # what is written where a mask is true must be as much as was read
            args = tree_map(self._mask, tuple(args))
        name, result = name_of(func), func(*args, **(kwargs or {}))
        if not _hands_over(func):
            return result
        place, line = _at_work(self.calls), _line()
        if line is None:
            return result
        number = name in ASKS and not isinstance(result, bool)
        self.asked.append(Question(place, line, 2 if number else 1))
        if line != self.line or place not in self.left:
            return result
        self.left.discard(place)
        if name in MASKED:
            return func(*tree_map(self._flipped, tuple(args)), **(kwargs or {}))
        return _another(result, self.variant) if name in ASKS else _more(name, result)

    def _mask(self, value: object) -> Any:
        return self.masks.get(id(value), (value, value))[1]

    def _flipped(self, value: object) -> Any:
        """A mask that chooses one less, or one if there was none."""
        if not isinstance(value, Tensor) or value.dtype not in MASKS or not value.numel():
            return value
        other = value.clone(memory_format=torch.contiguous_format)
        flat, chosen = other.view(-1), value.reshape(-1).nonzero()
        flat[chosen[-1] if len(chosen) else 0] = not len(chosen)
        self.masks[id(value)] = value, other
        return other


def _hands_over(function: object) -> bool:
    """Whether an operation hands a value to Python, or has results as large as values tell."""
    return name_of(function) in ASKS or torch.Tag.dynamic_output_shape in getattr(function, "tags", ())


def _another(value: Any, variant: int) -> Any:
    """Another answer.

    >>> _another(True, 0), _another(2, 0), _another(2, 1)
    (False, 3, 12)
    """
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + (1, 10)[variant]
    return (1, -1)[variant] * 1000 * (abs(value) + 1)


def _more(name: str, result: object) -> Any:
    """Results with the last row twice, or with one if there was none."""
    if isinstance(result, Tensor):
        one = result[-1:] if len(result) else result.new_zeros(1, *result.shape[1:])
        return torch.cat([result, one])
    parts = list(cast("tuple[Tensor, ...]", result))
    longer = (0, 2) if "unique" in name else (0,)  # between them is one for each input
    return tuple(_more("", one) if place in longer else one for place, one in enumerate(parts))


def _at_work(calls: Calls) -> str:
    return calls.stack[-1] if calls.stack else ""


def _line() -> tuple[str, int] | None:
    """The innermost line that is neither torch's nor ours; None if we ask whether indices are in range."""
    frame: Any = inspect.currentframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        if frame.f_code.co_filename == limits.__file__:
            return None
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _by_us() -> bool:
    """Whether it is ourselves who ask, to watch the model."""
    frame: Any = cast("Any", inspect.currentframe()).f_back
    while frame.f_code.co_name == "__torch_function__":  # other modes hand it on
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(LIBRARIES[1])
