"""Operations of a pass as they are compared with those of other passes, and which passes are kept."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from symoptim.symmetry.decisions import value_keys
from symoptim.symmetry.graph import Graph, Operation, Ref, mapped, once
from symoptim.symmetry.rules.moving import axes_of
from symoptim.symmetry.rules.pointwise import COPIES
from symoptim.symmetry.variations import Call

NO_STEPS = ("getitem", "detach", "alias")
"""Operations that compute nothing; autograd does some, where it is on."""
RESHAPES = ("view", "reshape", "_unsafe_view")
"""Operations that keep all entries in order."""
BY_SIZES = {
    "view",
    "reshape",
    "_unsafe_view",
    "slice",
    "select",
    "split",
    "split_with_sizes",
    "chunk",
    "narrow",
    "unfold",
    "as_strided",
    "slice_scatter",
    "select_scatter",
    "arange",
    "linspace",
    "eye",
    "zeros",
    "ones",
    "empty",
    "new_zeros",
    "new_ones",
    "new_empty",
    "rand",
    "randn",
    "randint",
    "randperm",
    "repeat",
    "tile",
    "repeat_interleave",
    "im2col",
    "col2im",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
}
"""Operations whose numbers are sizes and places: with other sizes these differ, and nothing else does."""


FIRST = {"full": 1, "new_full": 2, "constant_pad_nd": 2, "pad": 2, "native_group_norm": 6}
"""Arguments before this one are sizes."""


class Step(NamedTuple):
    """An operation as it is compared with those of other passes."""

    place: str
    name: str
    leaves: tuple[str, ...]
    """Tensors of the model that it takes."""
    numbers: str
    """Its other arguments."""
    value: int = 0
    """A number for what it computes: the same where the same operations are done on the same values."""


def plain(done: Iterable[Step]) -> list[Step]:
    """Operations, whatever values they are done on."""
    return [one._replace(value=0) for one in done]


class Kinds(NamedTuple):
    """What passes on inputs of other sizes have in common if they take the same path."""

    names: frozenset[Step]
    """Without numbers."""
    counts: frozenset[tuple[Step, int]]
    """With numbers that are no sizes, and how often each is done."""


@once
def steps(graph: Graph) -> tuple[Step, ...]:
    """All operations of a pass but those that take a part of a result, or mark a range for profilers."""
    return tuple(step for _, step in _steps(graph))


@once
def _steps(graph: Graph) -> list[tuple[Operation, Step]]:
    found: list[tuple[Operation, Step]] = []
    names = {leaf.index: leaf.name for leaf in graph.leaves if leaf.kind in ("parameter", "buffer")}
    keys = value_keys(graph, numbers=False)
    for operation in graph.operations:
        if operation.name not in NO_STEPS and not operation.name.startswith("profiler::"):
            leaves = tuple(names[index] for index in operation.references() if index in names)
            value = keys[operation.index] or 0  # nobody knows of what nothing is made of
            found.append(
                (operation, Step(operation.place, operation.name, leaves, _numbers(operation), value))
            )
    return found


def _numbers(operation: Operation, first: int = 0) -> str:
    """Arguments that are no tensors, from that one on."""

    def shown(argument: object) -> Any:
        return "a tensor" if isinstance(argument, Ref) else argument

    arguments, keywords = mapped(shown, (operation.arguments[first:], dict(operation.keywords)))
    return f"{arguments} {keywords}"


@once
def kinds(graph: Graph) -> Kinds:
    """What is compared where sizes differ; not what only copies."""
    found = [
        (operation, step) for operation, step in _steps(graph) if step.name not in (*COPIES, "expand", "item")
    ]
    return Kinds(
        frozenset(step._replace(numbers="") for _, step in found),
        frozenset(Counter(step._replace(numbers=_but_for_sizes(one)) for one, step in found).items()),
    )


def _but_for_sizes(operation: Operation) -> str:
    return "" if operation.name in BY_SIZES else _numbers(operation, FIRST.get(operation.name, 0))


SLICES = ("slice", "select", "narrow", "split", "split_with_sizes")


def takes_other_parts(first: Graph, other: Graph) -> bool:
    """Whether a pass takes other parts of a value than the first one does, though these have the same size.

    Of an axis that is longer for longer inputs other parts are taken in any case.
    """
    mine, theirs = _parts_taken(first), _parts_taken(other)
    return any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys())


@once
def _parts_taken(graph: Graph) -> dict[tuple[Step, int], set[str]]:
    """By operation and size of the axis: which parts of values that are made of weights and inputs."""
    of_weights = graph.made_of("parameter", "buffer") & graph.made_of("input")
    shapes = {one.index: one.result.shape for one in graph.operations if isinstance(one.result, Tensor)}
    found: dict[tuple[Step, int], set[str]] = {}
    for operation, step in _steps(graph):
        whole = operation.references()[0] if operation.name in SLICES else -1
        if whole in of_weights and whole in shapes:
            size = int(shapes[whole][axes_of(operation)[0]])
            found.setdefault((step._replace(numbers=""), size), set()).add(step.numbers)
    return found


def loses_cuts(first: Graph, other: Graph) -> bool:
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


MOST_ALIKE = 3
"""Passes that are kept if they differ in numbers only, or in how often something is done: the first, and the
one on the largest inputs."""


class KeptPasses:
    """Passes that did something else than the first one, and than each other."""

    def __init__(self, first: Graph) -> None:
        """Begin with the first one alone."""
        self.first, self.kinds = first, kinds(first)
        self.others: list[tuple[Call, Graph, bool]] = []
        """Calls, what they did, and whether only their sizes are others."""
        self.seen: set[object] = {steps(self.first)}
        self.alike: dict[frozenset[Step], dict[Kinds, int]] = {}
        """Numbers of passes on other sizes: of those that do the same operations, by all they do."""
        self.sizes: dict[int, int] = {}
        """Sizes of those that were tried for a size."""

    def keep(self, call: Call, graph: Graph) -> None:
        """Keep a pass on other values unless there is one like it."""
        if steps(graph) not in self.seen:
            self.seen.add(steps(graph))
            self.others.append((call, graph, False))

    def keep_size(self, call: Call, graph: Graph, size: int | None) -> None:
        """Keep a pass on other sizes if it did other operations, or with other numbers, or more often.

        Args:
            call: its inputs.
            graph: what it did.
            size: that was tried; None for inputs that the user has given.
        """
        path = kinds(graph)
        changed = loses_cuts(self.first, graph) or takes_other_parts(self.first, graph)
        if path == self.kinds and not changed:
            return
        alike = self.alike.setdefault(frozenset(plain(path.names)), {})
        others = self.others
        if size is None:  # what the user gives counts, however much of it there is
            others.append((call, graph, True))
            return
        if path not in alike and len(alike) < MOST_ALIKE:
            alike[path] = len(others)
            others.append((call, graph, True))
        else:
            path = path if path in alike else list(alike)[-1]
            if _entries(call) <= _entries(others[alike[path]][0]):
                return
            others[alike[path]] = call, graph, True  # the more is read, the more is known
        self.sizes[alike[path]] = size


def _entries(call: Call) -> int:
    return sum(tensor.numel() for tensor in call.tensors())
