"""Which paths calls take through a model, and where the path depends on values, sizes, chance or state.

A trace shows one path. So the model is also run on inputs of other values and sizes, with other seeds, one
call after the other on one copy of it, and the operations of each pass are compared with those of the first:

    other operations         that pass is traced too: only what holds on every path is a symmetry
    a value that Python      ``if x.sum() > 0`` may lead anywhere in the module that asks: its *frame* is
    asks for                 exposed
    a parameter that no      what could meet it is not known: the frame of its module is exposed
    pass has reached

The frame of a module is all that its ``forward`` sees: its own parameters, what it computes itself, and what
goes into the modules it calls and comes out of them; what these compute inside, it does not see. What is seen
in an exposed frame, or in that of a module around it, is pinned, unless the user vouches for that module.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from symoptim.errors import OptionError, TraceError
from symoptim.symmetry.graph import Graph, Operation, Ref, has_symbolic_result
from symoptim.symmetry.isolation import isolated, seeds_restored, set_seeds
from symoptim.symmetry.quiet import quietly
from symoptim.symmetry.record import record
from symoptim.symmetry.recorder import Earlier
from symoptim.symmetry.rules.pointwise import COPIES
from symoptim.symmetry.tensors import model_tensors
from symoptim.symmetry.variations import Call, Sizes, multiples, other_values, resized, sizes_to_try

ASKS = ("_local_scalar_dense", "equal")
"""Operations that hand a value to Python: ``if``, ``item()``, ``torch.equal``."""
RESHAPES = ("view", "reshape", "_unsafe_view")
"""Operations that keep all entries in order."""
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules whose children others use one by one."""


class Step(NamedTuple):
    """An operation as it is compared with those of other passes."""

    place: str
    name: str
    leaves: tuple[str, ...]
    """Tensors of the model that it takes."""
    numbers: str
    """Its other arguments."""


@dataclass(slots=True)
class Survey:
    """What is known of the paths through a model."""

    others: list[tuple[Call, Graph, bool]] = field(default_factory=list[tuple[Call, Graph, bool]])
    """Calls that took other paths, what they did, and whether only sizes differ."""
    first: Graph | None = None
    """What the example did."""
    unreached: tuple[str, ...] = ()
    exposed: frozenset[str] = frozenset()
    """Modules whose frames are exposed."""
    sentences: tuple[str, ...] = ()
    """What decides the path, in words."""


Watch = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], Graph]
"""What gives the graph of a pass."""


def survey(
    model: nn.Module,
    calls: Sequence[Call],
    vouch: Sequence[str] = (),
    exported: Graph | None = None,
    watch: Watch | None = None,
) -> Survey:
    """Run a model on an example, and on variations of it.

    Args:
        model: the network; it is left as it is.
        calls: examples; variations are made of the first.
        vouch: patterns of names of modules and parameters that are not to be exposed.
        exported: the graph by ``torch.export``, if there is one. It stands for whatever values are asked for
            and whatever sizes depend on values: where one of them decides the path, there is no such graph.
        watch: gives the graph of a pass; ``record`` by default.

    Returns:
        What was seen.

    Raises:
        TraceError: the example cannot be watched.
    """
    with seeds_restored(), quietly():  # what a model warns of would be said at every pass
        return _Surveyor(model, vouch, exported, watch).survey(calls)


class _Surveyor:
    """Collects what passes show."""

    def __init__(
        self, model: nn.Module, vouch: Sequence[str], exported: Graph | None, watch: Watch | None
    ) -> None:
        self.model, self.vouch, self.watch = isolated(model), tuple(vouch), watch
        self.exported = exported is not None  # sizes that depend on values decide nothing there
        operations = () if exported is None else exported.operations
        self.sized = {one.place for one in operations if has_symbolic_result(one)}
        """Modules in which sizes depend on values, whatever these are."""
        self.asked = Counter(one.place for one in operations if one.name in ASKS)
        """How often modules ask for values, whatever these are."""
        named = cast("Iterable[tuple[str, nn.Module]]", self.model.named_modules())
        self.places = {id(module): name for name, module in named}
        self.reasons: dict[str, set[str]] = {}
        """Modules whose frames are exposed, by what is the matter there."""
        self.sizes: list[int] = []
        """Sizes at which a pass did other operations."""
        self.passes: list[Graph] = []
        self.seed = 0
        self.earlier = Earlier()

    def survey(self, calls: Sequence[Call]) -> Survey:
        """All passes, one after the other."""
        found = Survey(first=self._pass(calls[0]))
        assert found.first is not None
        seen: set[object] = {_steps(found.first)}

        def keep(call: Call, graph: Graph, *, sizes: bool) -> None:
            path = frozenset(_kinds(graph)) if sizes else _steps(graph)
            if path not in seen:
                seen.add(path)
                found.others.append((call, graph, sizes))

        for call in calls[1:]:
            try:
                keep(call, self._pass(call), sizes=True)
            except TraceError as failure:
                raise OptionError(f"an example of inputs=[...] cannot be used: {failure}") from failure
        self._try_values(calls[0], found.first, keep)
        self._try_sizes(calls[0], found.first, keep)
        self._note_asked_values()
        self._close(found)
        if found.exposed:
            self._add_returned_values(found, calls[0])
        return found

    def _add_returned_values(self, found: Survey, first: Call) -> None:
        """Passes that show what modules return; without them nothing but inner parts of modules is hidden."""
        try:
            for call in (first, *(call for call, _, _ in found.others)):
                graph = record(self.model, *_copied(call), self.earlier, functional=False)
                found.others.append((call, graph, False))
        except Exception:  # not every model can be watched so
            found.exposed = frozenset(self.places.values())

    def _pass(self, call: Call) -> Graph:
        """One pass, with seeds of its own."""
        self.seed += 1
        set_seeds(self.seed)
        mine = _copied(call)
        graph = record(self.model, *mine, self.earlier) if self.watch is None else self.watch(self.model, *mine)
        self.passes.append(graph)
        return graph

    def _tried(self, call: Call | None) -> Graph | None:
        """The same, or None where the model does not take such inputs."""
        try:
            return None if call is None else self._pass(call)
        except Exception:  # the model does not take such inputs
            return None

    def _try_values(self, call: Call, first: Graph, keep: Any) -> None:
        different = False
        for other in other_values(call) if self.watch is None else ():  # no export leaves an ``if`` on values
            graph = self._tried(other)
            if graph is not None and _steps(graph) != _steps(first):
                keep(other, graph, sizes=False)
                if self._but_for_sizes(graph) != self._but_for_sizes(first):
                    different = True
                    self._expose(first, graph, "values of the inputs decide the path")
        again = [graph for graph in (self._tried(call), self._tried(call)) if graph is not None]
        if any(_steps(graph) != _steps(first) for graph in again):
            if different:
                self.reasons.clear()  # values need not have had anything to do with it
            for graph in self.passes[1:]:
                self._expose(first, graph, "chance or an earlier call decides the path")
            for graph in again:
                keep(call, graph, sizes=False)

    def _but_for_sizes(self, graph: Graph) -> list[Step]:
        return [step._replace(numbers="") if step.place in self.sized else step for step in _steps(graph)]

    def _expose(self, first: Graph, other: Graph, reason: str) -> None:
        """Expose the modules that did other operations in one pass than in the other."""
        mine, theirs = Counter(_steps(first)), Counter(_steps(other))
        places = {_decided_in(step.place, mine, theirs) for step in mine.keys() ^ theirs.keys()}
        if mine == theirs:  # the same in another order
            pairs = zip(_steps(first), _steps(other), strict=True)
            places = next(({one.place, two.place} for one, two in pairs if one != two), set[str]())
        self.reasons.setdefault(reason, set()).update(places)

    def _try_sizes(self, call: Call, first: Graph, keep: Any) -> None:
        for group in sizes_to_try(self.model, call, self.places):
            if self._try_all(call, first, keep, group, group.sizes):
                continue
            number, axis = group.axes[0]
            steps = multiples(call.tensors()[number].shape[axis])
            if not self._try_all(call, first, keep, group, steps) and len(group.axes) > 1:
                for alone in group.axes:  # perhaps one of them is free
                    self._try_all(call, first, keep, group._replace(axes=(alone,)), group.sizes[:2])

    def _try_all(self, call: Call, first: Graph, keep: Any, group: Sizes, sizes: Sequence[int]) -> bool:
        """Whether the model takes any of these sizes."""
        taken = [self._try_axes(call, first, keep, group, size) for size in sizes]
        return any(taken)

    def _try_axes(self, call: Call, first: Graph, keep: Any, group: Sizes, size: int) -> bool:
        other = resized(call, group.axes, size)
        if other is None:
            reason = f"a size of {size} decides the path and is too large to be tried (give it in inputs=)"
            if group.decided_in:
                self.reasons.setdefault(reason, set()).update(group.decided_in)
            return False
        graph = self._tried(other)
        if graph is not None and (_kinds(graph) != _kinds(first) or _loses_cuts(first, graph)):
            keep(other, graph, sizes=True)
            self.sizes.append(size)
        return graph is not None

    def _note_asked_values(self) -> None:
        for graph in self.passes:
            asked = [one for one in _asked(graph) if not self.exported or one[0].name in ASKS]
            often = Counter(operation.place for operation, _ in asked)
            for operation, cause in asked:
                if often[operation.place] <= self.asked[operation.place]:
                    continue
                self.reasons.setdefault(
                    f"{cause} are asked for by Python and may decide the path", set()
                ).add(operation.place)

    def _close(self, found: Survey) -> None:
        """Complete the result: modules around exposed ones are exposed too, vouched ones are not."""
        tensors = dict(self.model.named_parameters())
        names = model_tensors(self.model)
        used = {id(names[name]) for graph in self.passes for name in _used(graph) if name in names}
        unreached = tuple(name for name, tensor in tensors.items() if id(tensor) not in used)
        owners = {name.rpartition(".")[0] for name in unreached if not self._is_vouched(name)}
        exposed = set(owners)
        sentences: list[str] = []
        if self.sizes:
            tried = ", ".join(map(str, dict.fromkeys(self.sizes)))
            sentences.append(f"sizes of the inputs decide the path: what is found holds at size {tried} too")
        for reason, places in self.reasons.items():
            open_places = {place for place in places if not self._is_vouched(place)}
            exposed |= open_places
            word = "pinned" if open_places else "vouched for"
            where = ", ".join(place or "the model itself" for place in sorted(places)[:4])
            more = f" and {len(places) - 4} more" if len(places) > 4 else ""
            sentences.append(f"{reason}: in {where}{more} ({word})")
        found.exposed = frozenset(self._with_frames_around(exposed))
        found.unreached, found.sentences = unreached, tuple(sentences)

    def _is_vouched(self, name: str) -> bool:
        around = [name.rsplit(".", cut)[0] for cut in range(name.count(".") + 1)]
        return any(fnmatchcase(part, pattern) for part in around for pattern in self.vouch)

    def _with_frames_around(self, places: set[str]) -> Iterator[str]:
        """Modules around these, and what these only contain."""
        around = {place.rsplit(".", cut)[0] for place in places for cut in range(place.count(".") + 1)}
        around |= {""} if places else set()
        modules = dict(cast("Iterable[tuple[str, nn.Module]]", self.model.named_modules()))
        for name, module in modules.items():  # parents come first
            if name and name.rpartition(".")[0] in around and isinstance(module, CONTAINERS):
                around.add(name)
        yield from around


def _copied(call: Call) -> Call:
    """The same call with tensors of its own: a model may write into its inputs."""
    return call.changed(lambda _, tensor: tensor.detach().clone())


def _decided_in(place: str, *passes: Counter[Step]) -> str:
    """The module that decides on an operation of one pass: the one around what is not called in the other."""
    around = place
    while around:
        if all(any(f"{step.place}.".startswith(f"{around}.") for step in one) for one in passes):
            return around
        around = around.rpartition(".")[0]
    return around


def _steps(graph: Graph) -> tuple[Step, ...]:
    """All operations of a pass but those that take a part of a result, or mark a range for profilers."""
    names = {leaf.index: leaf.name for leaf in graph.leaves if leaf.kind in ("parameter", "buffer")}
    return tuple(
        Step(
            operation.place,
            operation.name,
            tuple(names[index] for index in operation.references() if index in names),
            _numbers(operation),
        )
        for operation in graph.operations
        if operation.name != "getitem" and not operation.name.startswith("profiler::")
    )


def _numbers(operation: Operation) -> str:
    def plain(argument: Any) -> Any:
        return "a tensor" if isinstance(argument, Ref) else argument

    arguments, keywords = tree_map(plain, (operation.arguments, dict(operation.keywords)))
    return f"{arguments} {keywords}"


def _kinds(graph: Graph) -> set[Step]:
    """What is compared where sizes differ: not how often, not with which numbers, not what only copies."""
    return {step._replace(numbers="") for step in _steps(graph) if step.name not in (*COPIES, "expand")}


def _loses_cuts(first: Graph, other: Graph) -> bool:
    """Whether reshaping keeps axes apart in the first pass that it mixes in the other.

    Such axes are apart because sizes happen to agree: ``x.reshape(-1, 4, 2)`` of (2, 8) has one block each
    for two rows, of (2, 4) one for both.
    """
    mine, theirs = ([one for one in graph.operations if one.name in RESHAPES] for graph in (first, other))
    if [one.place for one in mine] != [one.place for one in theirs]:
        return False  # loops of another length, say: no operation of one is that of the other
    pairs = zip(_cuts(first, mine), _cuts(other, theirs), strict=True)
    return any(not one <= two for one, two in pairs)


def _cuts(graph: Graph, operations: Iterable[Operation]) -> Iterator[set[tuple[int, int]]]:
    """Of operations that reshape: places before which a tensor and its result have as many entries.

    Axes of size one at a place belong to either side of it.
    """
    shapes = {leaf.index: leaf.tensor.shape for leaf in graph.leaves}
    shapes |= {one.index: one.result.shape for one in graph.operations if isinstance(one.result, Tensor)}
    for operation in operations:
        before, after = shapes.get(operation.references()[0], ()), operation.result.shape
        sizes = [[math.prod(shape[:n]) for n in range(len(shape) + 1)] for shape in (before, after)]
        yield {(i, j) for i, one in enumerate(sizes[0]) for j, two in enumerate(sizes[1]) if one == two}


def _used(graph: Graph) -> set[str]:
    """Names of the model's tensors that a pass has used."""
    used = {index for operation in graph.operations for index in operation.references()}
    used |= {ref.index for ref in graph.outputs}
    return {leaf.name for leaf in graph.leaves if leaf.index in used}


def _asked(graph: Graph) -> Iterator[tuple[Operation, str]]:
    """Operations that hand to Python a value which may be another one next time, and what it comes from."""
    written = {name for name, _ in graph.mutated}
    causes: dict[int, str] = {}
    for leaf in graph.leaves:
        if leaf.kind == "input" and leaf.name.startswith("input "):
            causes[leaf.index] = "values of the inputs"
        elif leaf.name in written:
            causes[leaf.index] = "values of buffers"
    for operation in graph.operations:
        cause = next((causes[index] for index in operation.references() if index in causes), "")
        if not cause and _draws(operation):
            cause = "random values"
        if cause:
            causes[operation.index] = cause
            if operation.name in ASKS or _has_size_by_values(operation):
                yield operation, cause


def _has_size_by_values(operation: Operation) -> bool:
    """Whether the size of a result tells Python of values: how many are not zero, or different."""
    tags = getattr(operation.function, "tags", ())
    # An index by numbers has that tag, too; only one by a mask has a size that depends on values.
    return torch.Tag.dynamic_output_shape in tags and operation.name not in ("index", "repeat_interleave")


def _draws(operation: Operation) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(operation.function, "tags", ())
