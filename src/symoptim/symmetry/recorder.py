"""What notes the operations of a forward pass."""

import gc
import math
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain, compress, repeat
from operator import getitem
from typing import Any, NamedTuple, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor, TypedStorage, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from symoptim.errors import TraceError
from symoptim.symmetry.graph import Graph, Kind, Leaf, Operation, Ref, has_plain_sizes, mapped, name_of
from symoptim.symmetry.limits import ResultSizes, require_in_range
from symoptim.symmetry.memory import address
from symoptim.symmetry.module_stack import ModuleStack

EARLIER = "earlier "
"""How names of constants begin that an earlier pass has made."""


class Part(NamedTuple):
    """One of several results: of which operation, which one, and where."""

    whole: int
    position: int
    place: str


class Made(NamedTuple):
    """A result: of which operation of a module, by its name, and which one of that name there."""

    place: str
    name: str
    number: int


def made_in(graph: Graph) -> dict[int, Made]:
    """What a pass has made of the model's tensors, by number."""
    own, often = graph.made_of_tensors(), Counter[tuple[str, str]]()
    found: dict[int, Made] = {}
    for operation in graph.operations:
        key = operation.place, operation.name
        often[key] += 1
        if operation.index in own:
            found[operation.index] = Made(*key, often[key])
    return found


class Earlier:
    """Tensors that were there before a pass: they are no results of it, but constants.

    To look through all of Python's objects takes a tenth of a second, so that passes one after the other
    share one of these.
    """

    def __init__(self) -> None:
        """Note all tensors there are now."""
        self._first = {id(one): one for one in _tensors()}
        self._later: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._made: dict[int, Made] = {}
        self.used: set[Made] = set()
        """Values that a pass has used, and an earlier one has made of the model's tensors."""

    def add(self, graph: Graph, values: Sequence[object]) -> None:
        """Note results of a pass: the model may keep some."""
        own = made_in(graph)
        for operation in graph.operations:
            for value in tree_leaves(values[operation.index]):
                if isinstance(value, Tensor):
                    self._later[id(value)] = value
                    self._made.pop(id(value), None)
                    if operation.index in own:
                        self._made[id(value)] = own[operation.index]

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._first or self.is_made(tensor)

    def is_made(self, tensor: Tensor) -> bool:
        """Whether a pass has made it."""
        return self._later.get(id(tensor)) is tensor

    def use(self, tensor: Tensor) -> None:
        """Note that a pass uses what another one has made."""
        self.used |= {self._made[id(tensor)]} if id(tensor) in self._made else set()


def _tensors() -> list[Tensor]:
    """All tensors there are.

    The last line runs no Python code before it has let go of all other objects, so that no other thread runs
    meanwhile. CPython cannot finish a tuple that one thread is filling while another one holds it:
    ``gc.get_objects`` in a loop here raises a ``SystemError`` there.
    """
    kinds = frozenset(id(kind) for kind in _subclasses(Tensor))
    objects = chain.from_iterable(map(gc.get_objects, (None,)))
    twice = chain.from_iterable(map(repeat, objects, repeat(2)))  # first itself, then for its type
    return list(compress(twice, map(kinds.__contains__, map(id, map(type, twice)))))


def _subclasses(kind: type) -> Iterator[type]:
    yield kind
    for one in type.__subclasses__(kind):
        yield from _subclasses(one)


class Recorder(TorchDispatchMode):
    """Notes every operation while it is entered; values are known by their identity, and kept alive."""

    def __init__(
        self,
        model: nn.Module,
        earlier: Earlier | None = None,
        room: float = math.inf,
        sizes: ResultSizes | None = None,
    ) -> None:
        """Begin with nothing noted; ``room`` is the bytes that results may take."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.modules = ModuleStack(model)
        self.earlier = Earlier() if earlier is None else earlier
        self.number: dict[int, int] = {}
        self.parts: dict[int, Part] = {}
        self.alive: list[Any] = []
        self.sizes = ResultSizes() if sizes is None else sizes
        self.room, self.taken = room, 0
        """Bytes that results may take, and those they do."""
        self.in_memory: dict[int, dict[int, Tensor]] = {}
        self.own: set[int] = set()
        """Where the memory of inputs and of the model's tensors begins."""
        self.originals: set[int] = set()
        """The same of tensors of which the pass has a copy."""
        self.written: set[int] = set()
        """Where memory begins that the pass has written to."""
        self.leaves: list[Leaf] = []
        self.operations: list[Operation] = []
        self.written_back: dict[int, Ref | None] = {}
        self.seen: list[tuple[str, Tensor]] = []
        self.raised: dict[str, None] = {}

    def add_leaf(self, tensor: Tensor, kind: Kind, name: str, *, original: Tensor) -> int:
        """Note a value that is there from the beginning."""
        index, self.taken = self._new(tensor), 0  # this is no result
        self.leaves.append(Leaf(index, kind, name, original))
        if kind != "constant":
            self.own.add(address(original))
            self.originals |= {address(original)} if original is not tensor else set()
            self.written_back[index] = None
        return index

    def _new(self, value: object) -> int:
        index = len(self.alive)
        self.alive.append(value)
        self.number[id(value)] = index
        for one in [value] if isinstance(value, Tensor) else tree_leaves(value):
            if isinstance(one, Tensor):
                where = address(one)
                if where not in self.in_memory:
                    self.taken += one.nbytes if has_plain_sizes(one) and one.layout == torch.strided else 0
                self.in_memory.setdefault(where, {})[id(one)] = one
        return index

    def refer(self, value: object, *, literal: bool = False) -> Any:
        """A reference to a tensor; a constant if it was there before, or is a number written down."""
        if isinstance(value, UntypedStorage | TypedStorage):
            raise TraceError(
                "the model makes a tensor of the memory of another one (a storage), and torch does not see "
                "of which: take views and copies by operations (view, as_strided, clone)"
            )
        if not isinstance(value, Tensor):
            return value
        if id(value) in self.parts:
            self._take(value, self.parts.pop(id(value)))
        index = self.number.get(id(value))
        if index is None:
            if not literal and value not in self.earlier:
                raise TraceError(
                    f"a tensor of shape {tuple(value.shape)} comes from where torch does not see (numpy, "
                    "compiled code): make it by torch's own operations, or give it as an input"
                )
            original = value if address(value) in self.own else value.clone()  # a second way to a weight
            kind = "constant "
            if self.earlier.is_made(value):
                kind = EARLIER
                self.earlier.use(value)
            index = self.add_leaf(value, "constant", f"{kind}{len(self.alive)}", original=original)
        return Ref(index)

    def _take(self, value: Tensor, part: Part) -> None:
        """Note that one of several results is used."""
        whole, shape = (Ref(part.whole), part.position), _shape_alone(value)
        self.operations.append(Operation(self._new(value), "getitem", getitem, whole, {}, shape, part.place))

    def places(self) -> AbstractContextManager[None]:
        """Keep track of the module that is at work, and of tensors that go in and out of it."""

        def leaving(inputs: object, keywords: object, output: object) -> None:
            for place, values in ((self.modules.top, (inputs, keywords)), (self.modules.around, output)):
                self.seen += [(place, one) for one in tree_leaves(values) if isinstance(one, Tensor)]

        return self.modules.followed(entering=lambda: None, leaving=leaving)

    @contextmanager
    def noting(self) -> Generator[None]:
        """Note the module at work if an exception comes: a model may catch it, and go another way."""
        try:
            yield
        except TraceError:
            raise
        except Exception:
            self.raised[self.modules.top] = None
            raise

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, keywords = name_of(func), dict(kwargs or {})
        refer = partial(self.refer, literal=name.startswith("lift_fresh"))
        arguments, named = mapped(refer, tuple(args)), mapped(refer, keywords)
        written = list(_written(func, args, keywords))
        others = {key: one for tensor in written for key, one in self._sharing(tensor).items()}
        for tensor in written:
            self._require_copy(tensor)
            self.written.add(address(tensor))
        with self.noting():
            require_in_range(name, args)
            self.sizes.require_room(func, args, keywords, self.room - self.taken)
            result = func(*args, **keywords)
        if name == "copy_" and arguments[0].index in self.written_back:
            self.written_back[arguments[0].index] = arguments[1]  # what became of a buffer, or of an input
        elif written and (len(others) > 1 or written[0] is not args[0] or not name.endswith("_")):
            self._overwrite(name, func, arguments, named, others)
        else:  # if nobody else sees its memory, a tensor that is written to is as good as a new one
            self._note(name.removesuffix("_") if written else name, func, arguments, named, result)
        return result

    def _require_copy(self, tensor: Tensor) -> None:
        """Refuse to write to the model's own tensors, of which this pass has copies."""
        if address(tensor) in self.originals:
            raise TraceError(
                "the model writes to a weight or a buffer that it reaches by a second way (a list, a "
                "closure, a view in an attribute): let it write to the tensor itself, self.weight"
            )

    def _sharing(self, tensor: Tensor) -> dict[int, Tensor]:
        """All values that lie in the memory of one."""
        return self.in_memory.get(address(tensor), {id(tensor): tensor})

    def _overwrite(
        self, name: str, func: Any, arguments: Any, named: Any, others: Mapping[int, Tensor]
    ) -> None:
        """Note that all who share a memory have other values now: it has no rule, and pins them all."""
        place = self.modules.top
        before = [self.refer(one) for one in others.values()]
        for one in others.values():
            shape = _shape_alone(one)
            index = self._new(one)
            self.operations.append(
                Operation(index, f"{name} in shared memory", func, (*arguments, before), named, shape, place)
            )

    def _note(self, name: str, func: Any, arguments: tuple[Any, ...], keywords: Any, result: Any) -> None:
        place = self.modules.top
        index = self._new(result)
        shapes = mapped(_shape_alone, result)
        self.operations.append(Operation(index, name, func, arguments, keywords, shapes, place))
        if isinstance(result, list | tuple):
            for position, part in enumerate(cast("Sequence[Any]", result)):
                self.parts[id(part)] = Part(index, position, place)

    def graph(self, outputs: Sequence[Tensor], after: Mapping[str, Tensor]) -> Graph:
        """All that was noted.

        Args:
            outputs: what came out.
            after: the model's tensors at the end; where it has put another one in place, that one.

        Returns:
            The graph.
        """
        refs = [self.refer(one) for one in outputs]
        named = {leaf.index: leaf.name for leaf in self.leaves}
        own = {leaf.name: leaf.index for leaf in self.leaves}
        mutated: list[tuple[str, Ref]] = []
        for index, value in self.written_back.items():
            if value is not None and named[index] in after:
                mutated.append((named[index], value))
            elif value is not None:
                refs.append(value)  # what is written into an input is seen outside
        for name, tensor in after.items():
            if self.refer(tensor).index != own[name]:
                mutated.append((name, self.refer(tensor)))
        known = [one for one in self.seen if id(one[1]) in self.number or id(one[1]) in self.parts]
        seen = tuple((place, self.refer(one)) for place, one in known)
        return Graph(
            tuple(self.leaves),
            tuple(self.operations),
            tuple(refs),
            tuple(mutated),
            seen,
            raised=tuple(self.raised),
            memory=self.taken,
        )


def _written(func: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[Tensor]:
    """Tensors an operation writes to."""
    for position, argument in enumerate(func._schema.arguments):
        given = arguments[position] if position < len(arguments) else keywords.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(given, Tensor):
            yield given


def _shape_alone(value: object) -> Any:
    """A tensor without values: those of a whole pass would fill the memory."""
    if not isinstance(value, Tensor):
        return value
    if type(value) is not Tensor or value.layout != torch.strided or value.is_quantized:
        return value.detach().to("meta")
    return torch.empty(value.shape, dtype=value.dtype, device="meta")
