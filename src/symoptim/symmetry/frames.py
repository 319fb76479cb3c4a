"""Frames of modules: all that a module's ``forward`` sees, and which modules may know of a decision.

A module sees its own parameters, what it computes itself, what it is given, and what goes into the modules it
calls and comes out of them. What these compute inside, it does not see.

A decision in one module may change what others do if it gives them something besides tensors when it calls
them, such as a flag, or if it returns something besides tensors to its caller. Tensors tell something, too:
by how many there are, by their types, axes and sizes (``x[keep]``); so does an exception. Sizes tell
something only to modules that ask for them: an expert works on as many rows as there are. A flag in an
attribute or in a global variable is not seen.
"""

import random
import re
import sys
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from symoptim.symmetry.decisions import Decision
from symoptim.symmetry.graph import Graph, Ref, has_plain_sizes


def crossings(graph: Graph, exposed: Collection[str], called: Collection[str]) -> set[int]:
    """Values that are seen in exposed frames.

    A value goes from the module that makes it up to the one around both, and down to the one that takes it.

    Args:
        graph: of a pass.
        exposed: names of modules.
        called: names of those that are called: others only hold modules or parameters for these.

    Returns:
        Numbers of the values.
    """
    if not exposed:
        return set()
    made: dict[int, str | None] = {
        leaf.index: _owner(leaf.name, called) if leaf.kind in ("parameter", "buffer") else ""
        for leaf in graph.leaves
    }
    found: set[int] = set()
    ways: dict[tuple[str, str], bool] = {}
    for operation in graph.operations:
        whole = operation.arguments[0] if operation.name == "getitem" else None
        made[operation.index] = made[whole.index] if isinstance(whole, Ref) else operation.place
        if isinstance(whole, Ref):
            continue
        for index in operation.references():
            maker = made.get(index, "")  # "" for what export has beside tensors: parts of torch.cond
            way = operation.place if maker is None else maker, operation.place
            if way not in ways:
                ways[way] = not set(_between(*way, called)).isdisjoint(exposed)
            found |= {index} if ways[way] else set()
    # A module may return what its caller uses on another path only, or be given what it does not use now.
    return found | {ref.index for place, ref in graph.seen if place in exposed}


def _owner(name: str, called: Collection[str]) -> str | None:
    """The module of a parameter; None if it is never called, or not by this name: its user sees it alone."""
    owner = name.rpartition(".")[0]
    return owner if owner in called else None


def around(place: str, called: Collection[str]) -> str:
    """The innermost module that is called, of one and those around it.

    >>> around("layers.1", {"", "layers.1.up"})
    ''
    """
    return next((one for one in (place, *_outside(place)) if one in called), "")


def _between(maker: str, taker: str, called: Collection[str]) -> Iterator[str]:
    """Modules in whose frames a value is on its way.

    >>> list(_between("layers.1.up", "layers.1.norm", {"", "layers.1", "layers.1.up", "layers.1.norm"}))
    ['layers.1.up', 'layers.1.norm', 'layers.1']
    >>> list(_between("0.down", "1.up", {"", "0", "1"}))
    ['0.down', '0', '1.up', '1', '']
    """
    shared = [one for one in (maker, *_outside(maker)) if one in (taker, *_outside(taker))]
    meet = around(shared[0], called)
    for start in dict.fromkeys((maker, taker)):
        yield from (one for one in (start, *_outside(start)) if len(one) > len(meet))
    yield meet


def _outside(place: str) -> Iterator[str]:
    """Modules around one by its name, the innermost first.

    >>> list(_outside("layers.1.up"))
    ['layers.1', 'layers', '']
    """
    while place:
        place = place.rpartition(".")[0]
        yield place


class Way(NamedTuple):
    """From a module to one that it calls, or to its caller."""

    start: str
    end: str


class Form(NamedTuple):
    """What is seen of values without looking into tensors."""

    plain: tuple[Any, ...]
    """Kinds of what is no tensor, and plain values themselves."""
    kinds: tuple[Any, ...]
    """How values are arranged; types, numbers of axes and further attributes of tensors."""
    sizes: tuple[Any, ...]


class Calls:
    """Notes which modules call each other, and what goes between them besides values of tensors."""

    def __init__(self, model: nn.Module) -> None:
        """Begin with nothing noted."""
        named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
        self.places = {module: name for name, module in named}
        self.called = {""}
        self.drawing: set[str] = set()
        """Modules that draw random numbers of Python or NumPy."""
        self.passed: dict[Way, set[frozenset[Any]]] = {}
        """What went each way besides tensors, of every pass."""
        self.forms: dict[tuple[Way, Any], set[frozenset[Form]]] = {}
        """Forms of what went each way, of passes on inputs of the same sizes."""
        self.stack: list[str] = []
        self.now: dict[Way, set[Form]] = {}
        """The same of the latest pass, as far as it came."""
        self.handled: list[Any] = []
        self.raising: tuple[tuple[str, ...], Any] | None = None
        self.drawn: Any = None

    @contextmanager
    def noted(self, sizes: object = None) -> Generator[None]:
        """Note all calls of a pass on inputs of some sizes."""
        self.stack, self.now, self.drawn = [], {}, _random_state()
        self.handled, self.raising = [], None
        with ExitStack() as stack:
            for module in self.places:
                stack.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                hook = module.register_forward_hook(self._leave, with_kwargs=True, always_call=True)
                stack.callback(hook.remove)
            yield
        for way, forms in self.now.items():
            self.passed.setdefault(way, set()).add(frozenset(form.plain for form in forms))
            self.forms.setdefault((way, sizes), set()).add(frozenset(forms))

    def _enter(self, module: nn.Module, inputs: object, keywords: object) -> None:
        self._note_draws()
        self._note_caught()
        self._note((*self.stack[-1:], self.places[module]), form_of((inputs, keywords)))
        self.stack.append(self.places[module])
        self.handled.append(sys.exc_info()[1])
        self.called.add(self.places[module])

    def _leave(self, module: nn.Module, _: object, __: object, output: object) -> None:
        self._note_draws()
        self.stack.pop()
        way = (self.places[module], *self.stack[-1:])
        error = sys.exc_info()[1]
        if error is self.handled.pop():
            self._note_caught()
            self._note(way, form_of(output))
        else:
            if self.raising is not None and self.raising[1] is not error:
                self._note_caught()
            self.raising = way, error

    def _note_caught(self) -> None:
        """The caller of the module that raised an exception goes on: it has caught it, and so knows of it."""
        if self.raising is not None:
            way, error = self.raising
            self._note(way, Form((("raised", type(error).__name__),), (), ()))
            self.raising = None

    def _note(self, way: tuple[str, ...], form: Form) -> None:
        if len(way) == 2:
            self.now.setdefault(Way(*way), set()).add(form)

    def _note_draws(self) -> None:
        """Chance that torch does not see is that of the module at work."""
        state = _random_state()
        if state != self.drawn:
            self.drawing.add(self.stack[-1] if self.stack else "")
            self.drawn = state

    def knowing(
        self, decisions: Iterable[Decision], informed: Collection[str] = (), asking: Collection[str] = ()
    ) -> frozenset[str]:
        """Modules in which something is decided, and all that may know of it.

        What goes from one module to another may be something else on a path that was never seen. Where
        others were seen, it was, or it is always the same.

        Args:
            decisions: what is decided.
            informed: modules that would get something else if a decision were another one.
            asking: modules that ask for sizes.
        """
        decided = [one._replace(place=around(one.place, self.called)) for one in decisions]
        unseen = {one.place for one in decided if one.unseen} | set(informed)
        seen = {one.place for one in decided} | unseen
        while True:
            more = {
                way.end
                for way, values in self.passed.items()
                if way.start in unseen and any(map(any, values))
            }
            others = {way.end for way, values in self.passed.items() if way.start in seen and len(values) > 1}
            others |= self._informed_by_forms(seen, asking) | self._called_by_others(seen)
            if more <= unseen and others | more <= seen:
                return frozenset(seen)
            unseen, seen = unseen | more, seen | more | others

    def _informed_by_forms(self, places: set[str], asking: Collection[str]) -> set[str]:
        """Modules that got or were returned something of another form, beginning with these places.

        Sizes go on through modules that do not ask for them.
        """
        found, reached = set[str](), set(places)
        while True:
            ends: set[str] = set()
            for (way, _), passes in self.forms.items():
                if way.start in reached and len(passes) > 1:
                    ends.add(way.end)
                    kinds = {frozenset(form[:2] for form in forms) for forms in passes}
                    found |= {way.end} if len(kinds) > 1 or way.end in asking else set()
            if ends <= reached:
                return found
            reached |= ends

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


def form_of(values: object) -> Form:
    """What is seen of values without looking into tensors.

    >>> form_of(((1, None), {"flag": True})).plain
    (('int', 1), ('NoneType', None), ('bool', True))
    """
    leaves, arranged = tree_flatten(values)
    tensors = [one for one in leaves if isinstance(one, Tensor)]
    plain = tuple(_plain(one) for one in leaves if not isinstance(one, Tensor))
    kinds = tuple((one.dtype, one.dim(), *_further(one)) for one in tensors)
    sizes = tuple(None if one.is_nested or not has_plain_sizes(one) else tuple(one.shape) for one in tensors)
    return Form(plain, (re.sub("0x[0-9a-f]+", "", str(arranged)), *kinds), sizes)


def _further(tensor: Tensor) -> Iterator[tuple[str, ...]]:
    """Attributes that a tensor was given; subclasses have others of their own."""
    if type(tensor) is Tensor:
        yield from ((name, *_plain(value)) for name, value in vars(tensor).items())


def _plain(value: object) -> tuple[str, Any]:
    """The kind of a value, and itself if that is plain."""
    return type(value).__name__, value if isinstance(value, int | float | str | None) else None


def _random_state() -> Any:
    """Where the random generators of Python and NumPy are."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return random.getstate()
    state = numpy.random.get_state(legacy=False)["state"]
    return random.getstate(), state.get("pos"), *state.get("key", ())[:1]
