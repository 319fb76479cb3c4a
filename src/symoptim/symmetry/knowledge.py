"""Which modules may know of a decision that another one makes.

A decision in one module may change what others do if it gives them something besides tensors when it calls
them, such as a flag, or if it returns something besides tensors to its caller. A flag in an attribute or in a
global variable is not seen.
"""

import random
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from symoptim.symmetry.decisions import Decision
from symoptim.symmetry.frames import around


class Way(NamedTuple):
    """From a module to one that it calls, or to its caller."""

    start: str
    end: str


class Calls:
    """Notes which modules call each other, and what goes between them besides tensors."""

    def __init__(self, model: nn.Module) -> None:
        """Begin with nothing noted."""
        named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
        self.places = {module: name for name, module in named}
        self.called = {""}
        self.drawing: set[str] = set()
        """Modules that draw random numbers of Python or NumPy."""
        self.passed: dict[Way, set[frozenset[Any]]] = {}
        """What went each way, of every pass."""
        self.stack: list[str] = []
        self.now: dict[Way, set[Any]] = {}
        self.drawn: Any = None

    @contextmanager
    def noted(self) -> Generator[None]:
        """Note all calls of a pass."""
        self.stack, self.now, self.drawn = [], {}, _random_state()
        with ExitStack() as stack:
            for module in self.places:
                stack.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                hook = module.register_forward_hook(self._leave, with_kwargs=True, always_call=True)
                stack.callback(hook.remove)
            yield
        for way, values in self.now.items():
            self.passed.setdefault(way, set()).add(frozenset(values))

    def _enter(self, module: nn.Module, inputs: Any, keywords: Any) -> None:
        self._note_draws()
        self._note((*self.stack[-1:], self.places[module]), (inputs, keywords))
        self.stack.append(self.places[module])
        self.called.add(self.places[module])

    def _leave(self, module: nn.Module, _: Any, __: Any, output: Any) -> None:
        self._note_draws()
        self.stack.pop()
        self._note((self.places[module], *self.stack[-1:]), output)

    def _note(self, way: tuple[str, ...], values: Any) -> None:
        if len(way) == 2:
            self.now.setdefault(Way(*way), set()).add(_besides_tensors(values))

    def _note_draws(self) -> None:
        """Chance that torch does not see is that of the module at work."""
        state = _random_state()
        if state != self.drawn:
            self.drawing.add(self.stack[-1] if self.stack else "")
            self.drawn = state

    def knowing(self, decisions: Iterable[Decision]) -> frozenset[str]:
        """Modules in which something is decided, and all that may know of it.

        What goes from one module to another may be something else on a path that was never seen. Where
        others were seen, it was, or it is always the same.
        """
        decided = [one._replace(place=around(one.place, self.called)) for one in decisions]
        unseen = {one.place for one in decided if one.unseen}
        seen = {one.place for one in decided}
        while True:
            more = {
                way.end
                for way, values in self.passed.items()
                if way.start in unseen and any(map(any, values))
            }
            others = {way.end for way, values in self.passed.items() if way.start in seen and len(values) > 1}
            others |= self._called_by_others(seen)
            if more <= unseen and others | more <= seen:
                return frozenset(seen)
            unseen, seen = unseen | more, seen | more | others

    def _called_by_others(self, places: set[str]) -> set[str]:
        """Modules that hold a child of these under its first name: these may call it on another path."""
        found: set[str] = set()
        for module, place in self.places.items():
            if place in places:
                homes = [self.places[child].rpartition(".")[0] for child in self._within_reach(module)]
                found |= {around(home, self.called) for home in homes}
        return found

    def _within_reach(self, module: nn.Module) -> Iterator[nn.Module]:
        """Modules that one can call: its children, and those in containers."""
        for child in module.children():
            yield child
            if self.places[child] not in self.called:
                yield from self._within_reach(child)


def _besides_tensors(values: Any) -> tuple[Any, ...]:
    """Kinds of arguments that are no tensors, and plain ones themselves.

    >>> _besides_tensors(((1, None), {"flag": True}))
    (('int', 1), ('NoneType', None), ('bool', True))
    """
    leaves: list[Any] = tree_leaves(values)
    return tuple(
        (type(one).__name__, one if isinstance(one, int | float | str | None) else None)
        for one in leaves
        if not isinstance(one, Tensor)
    )


def _random_state() -> Any:
    """Where the random generators of Python and NumPy are."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return random.getstate()
    state = numpy.random.get_state(legacy=False)["state"]
    return random.getstate(), state.get("pos"), *state.get("key", ())[:1]
