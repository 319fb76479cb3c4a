"""Which places of each value the pass reads, found by going backwards through the graph.

No equation names a place that is not read, so that its scale would be free; but a longer input reads it. A
place is read if an output, or a buffer afterwards, is made of it. Operations that move elements are followed
place by place. Factors of zeros, and what only makes tensors without elements, are not read; all other
operations read all they take.
"""

import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from symoptim.symmetry.ansatz import CONVOLUTIONS
from symoptim.symmetry.constants import has_plain_sizes
from symoptim.symmetry.form import ANYTHING, Form
from symoptim.symmetry.graph import Graph, Operation, Ref
from symoptim.symmetry.rules.moving import (
    JOINS,
    LISTS,
    MOVES,
    PARTIAL,
    along,
    axes_of,
    axes_of_joining,
    channels_met,
    cut,
    results_of,
    spread_over,
    together,
)
from symoptim.symmetry.rules.pointwise import COPIES, SHAPE_ONLY
from symoptim.symmetry.tensors import squeezed

Read = Tensor | None
"""Places that are read, truth values that broadcast to the value's shape; None stands for all of them."""

MATRIX_PRODUCTS = {"mm": 0, "bmm": 0, "matmul": 0, "mv": 0, "dot": 0, "vdot": 0, "addmm": 1, "baddbmm": 1}
"""Matrix products, and the position of the left factor."""
PRODUCTS = {
    **dict.fromkeys((*CONVOLUTIONS, "_grouped_mm", "transformers::grouped_mm_fallback"), 2),
    "scaled_dot_product_attention": 3,
    "_trilinear": 3,
}
"""Other products, and the number of their factors, of which all are silent if one is zero."""
DEPTH = 2
"""Operations behind each other by which a value is known again in the next step of a loop."""
LARGEST = 2**27
"""Elements of a value that are numbered one by one."""


class ReadPlaces:
    """What is read of every value of a graph."""

    def __init__(self, graph: Graph, values: Mapping[int, Any], known: Mapping[int, Tensor]) -> None:
        """Go through a graph.

        Args:
            graph: of the model.
            values: forms of its values, by number: they say what is zero.
            known: places that never change, by number.
        """
        self.values, self.known = values, known
        self.producers = {operation.index: operation for operation in graph.operations}
        self.users: dict[int, list[Operation]] = {}
        for operation in graph.operations:
            for index in set(operation.references()):
                self.users.setdefault(index, []).append(operation)
        self.names = {leaf.index: leaf.name for leaf in graph.leaves if leaf.kind != "input"}
        self.shapes = {leaf.index: leaf.tensor for leaf in graph.leaves}
        self.shapes |= {one.index: one.result for one in graph.operations if isinstance(one.result, Tensor)}
        self.own = _made_of_tensors(graph)
        self.read: dict[int, Read] = {}
        self.taken: dict[int, Read] = {}
        """The same by operations that take parts alone, of what is made of the model's tensors.

        Others may not see its scale, such as a sign or a normalization, so that they tie nothing.
        """
        self.parts: dict[int, dict[int, Read]] = {}
        self.partly: dict[int, list[int]] = {}
        """Values of which an operation took a part, and the axes along which it did."""
        self.silent: list[tuple[Operation, int]] = []
        """Operations one of whose factors is zero, and another factor."""
        for value in (*graph.outputs, *(after for _, after in graph.mutated)):
            self._add(value.index, None)
        for operation in reversed(graph.operations):
            try:
                self._follow(operation)
            except (LookupError, AttributeError, RuntimeError, TypeError, ValueError):
                continue  # an unforeseen use: what counts as not read is pinned, which is right

    def _add(self, index: int, read: Read) -> None:
        """Note that places of a value are read."""
        if index not in self.shapes:  # several results at once
            producer = self.producers.get(index)
            self.parts[index] = dict.fromkeys(range(results_of(producer) if producer else 0))
        else:
            self._merge(self.read, index, read)

    def _take(self, index: int, read: Read, axes: Sequence[int], single: bool = False) -> None:
        """The same for an operation that takes a part, along these axes; a ``single`` place is one of them.

        Which place that is hardly depends on lengths, as the end of a part does.
        """
        self.partly.setdefault(index, []).extend(axes)
        self._add(index, read)
        if not single and index in self.own and index in self.shapes:
            self._merge(self.taken, index, read)

    def _merge(self, noted: dict[int, Read], index: int, read: Read) -> None:
        tensor = self.shapes[index]
        if not has_plain_sizes(tensor):
            noted[index] = None
        elif tensor.numel():
            before = noted.get(index, read)
            both = None if before is None or read is None else before | read
            if both is None or bool(both.all()):
                noted[index] = None
            elif bool(both.any()):
                noted[index] = squeezed(both)

    def _follow(self, operation: Operation) -> None:
        """Note what an operation reads of what it takes."""
        parts = self.parts.get(operation.index, {})
        if operation.index in self.read:
            parts = {0: self.read[operation.index]}
        if not parts or operation.name in SHAPE_ONLY:
            return
        if operation.name == "getitem":
            whole, position = operation.arguments
            if whole.index in self.shapes:
                self._add(whole.index, None)
            else:
                self.parts.setdefault(whole.index, {})[position] = parts[0]
        elif self.source(operation) is not None:
            self._move(operation, parts)
        elif joined := self._joined(operation):
            self._join(operation, joined, parts[0])
        else:
            for index, read in self._factors(operation):
                if read is None:
                    self._add(index, None)
                elif bool(read.any()):
                    self._take(index, read, [])
                else:
                    self.silent.append((operation, index))

    def source(self, operation: Operation) -> int | None:
        """The value whose elements an operation moves, if it does nothing else and where to is known."""
        if operation.name not in MOVES or not isinstance(operation.arguments[0], Ref):
            return None
        first, *others = operation.references()
        there = has_plain_sizes(self.shapes[first]) if first in self.shapes else False
        return first if there and all(other in self.known for other in others) else None

    def _move(self, operation: Operation, parts: Mapping[int, Read]) -> None:
        index = operation.references()[0]
        if operation.name in PARTIAL:
            self._take(index, self._pulled(operation, parts), axes_of(operation), operation.name == "select")
            return
        self._add(index, self._before(operation, parts))
        if operation.index in self.taken:
            self._take(index, self._before(operation, {0: self.taken[operation.index]}), [])

    def _before(self, operation: Operation, parts: Mapping[int, Read]) -> Read:
        """Places of what an operation that moves all elements takes, by those of what comes out."""
        if operation.name in COPIES:
            return parts[0]
        whole = all(read is None for read in parts.values()) and len(parts) == max(1, results_of(operation))
        return None if whole else self._pulled(operation, parts)

    def _joined(self, operation: Operation) -> list[int]:
        """Values whose elements an operation puts together, if it does nothing else."""
        arguments: Any = operation.arguments[: JOINS.get(operation.name, 0)]
        arguments = arguments[0] if operation.name in LISTS else arguments
        modes = (*operation.arguments, *operation.keywords.values()) if operation.name == "pad" else ()
        if any(isinstance(one, str) and one != "constant" for one in modes):
            return []  # it mirrors, which ties all places
        if any(not isinstance(one, Ref) or one.index not in self.shapes for one in arguments):
            return []
        found: list[int] = [one.index for one in arguments]
        return found if all(has_plain_sizes(self.shapes[index]) for index in found) else []

    def _join(self, operation: Operation, joined: Sequence[int], read: Read) -> None:
        """Of what is put together only those places are read that come out, and are read there."""
        shapes = [tuple(self.shapes[index].shape) for index in joined]
        counts = [math.prod(shape) for shape in shapes]
        met = torch.zeros(sum(counts) + 1, dtype=torch.bool)  # the last is for constants, which are -1
        if sum(counts) <= LARGEST:
            moved = together(operation, cut(torch.arange(sum(counts)), shapes))
            met[(moved if read is None else moved[read.expand(moved.shape)]).reshape(-1)] = True
        else:  # fewer places than are read do no harm: the others are made to go with them
            met[[0, *itertools.accumulate(counts[:-1])]] = True
        axes = axes_of_joining(operation)
        for index, part in zip(joined, cut(met, shapes), strict=True):
            self._take(index, part, axes)

    def _pulled(self, operation: Operation, parts: Mapping[int, Read]) -> Tensor:
        """Places behind which a part is read; the operation is run on their numbers."""
        shape = tuple(self.shapes[operation.references()[0]].shape)
        axes = [axis % len(shape) for axis in axes_of(operation)]
        if axes and operation.name not in ("gather", "take_along_dim"):  # these go by all axes at once
            found = self._numbered(
                operation, parts, [size if axis in axes else 1 for axis, size in enumerate(shape)]
            )
            if found is not None:
                return found
        found = self._numbered(operation, parts, shape) if math.prod(shape) <= LARGEST else None
        if found is None:  # fewer places than are read do no harm: the others are made to go with them
            found = torch.zeros(shape, dtype=torch.bool)
            found.reshape(-1)[0] = True
        return found

    def _numbered(
        self, operation: Operation, parts: Mapping[int, Read], shape: Sequence[int]
    ) -> Tensor | None:
        try:
            moved = self.run(operation, torch.arange(math.prod(shape)).reshape(tuple(shape)))
        except (RuntimeError, IndexError):
            return None
        found = torch.zeros(math.prod(shape), dtype=torch.bool)
        for position, read in parts.items():
            numbers = moved[position]
            if read is not None:
                if any(size not in (1, there) for size, there in zip(read.shape, numbers.shape, strict=True)):
                    return None
                numbers = numbers[read.expand(numbers.shape)]
            found[numbers.reshape(-1)] = True
        return found.reshape(tuple(shape))

    def run(self, operation: Operation, tensor: Tensor) -> list[Tensor]:
        """Results of an operation that moves elements, on others in their places."""
        if operation.name in COPIES:
            return [tensor]
        if operation.name in ("view", "_unsafe_view", "reshape"):
            return [tensor.reshape(tuple(operation.result.shape))]
        first = operation.references()[0]

        def value(argument: object) -> Any:
            if not isinstance(argument, Ref):
                return argument
            return tensor if argument.index == first else self.known[argument.index].cpu()

        arguments, keywords = tree_map(value, (operation.arguments, dict(operation.keywords)))
        result: Any = operation.function(*arguments, **keywords)
        return list(cast("Sequence[Tensor]", result)) if isinstance(result, list | tuple) else [result]

    def _factors(self, operation: Operation) -> Iterator[tuple[int, Read]]:
        """What is read of the arguments of an operation that is no move: not what meets zeros alone."""
        name, arguments = operation.name, operation.arguments
        met: dict[int, Read] = dict.fromkeys(operation.references()[1 if name == "fill" else 0 :])
        pairs: list[tuple[Any, Any, tuple[int, int] | None]] = []
        if name == "mul":
            pairs = [(arguments[0], arguments[1], None), (arguments[1], arguments[0], None)]
        elif name in ("div", "true_divide"):
            pairs = [(arguments[1], arguments[0], None)]
        elif name == "linear":
            pairs = [(arguments[0], arguments[1], (-1, -1)), (arguments[1], arguments[0], (-1, -1))]
        elif name in MATRIX_PRODUCTS:
            one, other = arguments[MATRIX_PRODUCTS[name] :][:2]
            row = max(-2, -len(self.shapes[other.index].shape))
            pairs = [(one, other, (-1, row)), (other, one, (row, -1))]
        for one, other, axes in pairs:
            zero = self._zeros(other)
            if isinstance(one, Ref) and zero is not None:
                shape = tuple(self.shapes[one.index].shape)
                met[one.index] = spread_over(~zero, shape) if axes is None else along(~zero, axes, len(shape))
        if name in CONVOLUTIONS and isinstance(arguments[1], Ref):
            zero, weight = self._zeros(arguments[0]), self.shapes[arguments[1].index]
            if zero is not None:
                met[arguments[1].index] = channels_met(operation, zero, tuple(weight.shape))
        factors = [one for one in arguments[: PRODUCTS.get(name, 0)] if isinstance(one, Ref)]
        if any(zero is not None and bool(zero.all()) for zero in map(self._zeros, factors)):
            for one in factors:
                met[one.index] = torch.zeros([1] * len(self.shapes[one.index].shape), dtype=torch.bool)
        yield from met.items()

    def uses(self) -> set[Any]:
        """Where values meet something that is not zero, as steps of a loop, or of another pass, have it."""
        silent = {(operation.index, index) for operation, index in self.silent}
        return {
            self._use(operation, index)
            for operation in self.producers.values()
            if operation.index in self.read
            for index in operation.references()
            if (operation.index, index) not in silent
        }

    def silenced(self, met: Collection[object]) -> set[int]:
        """Values that meet zeros where the like of them never meets anything else, and what these lead to.

        A state that begins with zeros does not stay zero: the next step of a loop, if there is one, says
        what its factor has to scale like. If there is none, the factor is as little known as the product.

        Args:
            met: :meth:`uses` of all passes.

        Returns:
            Numbers of the values.
        """
        alone = [one for one in self.silent if self._use(*one) not in met]
        return {index for _, index in alone} | self._first_values([operation for operation, _ in alone])

    def _use(self, operation: Operation, index: int) -> Any:
        """What a step of a loop has in common with the next, of an operation and a value that it takes."""
        return operation.name, operation.place, self._made(index, DEPTH)

    def _made(self, index: int, depth: int) -> Any:
        """What a value is made of, whichever part it is and however its elements are arranged."""
        producer = self.producers.get(index)
        if producer is None:
            return self.names.get(index, "an input")
        references = producer.references()
        if references and (producer.name == "getitem" or producer.name in MOVES):
            return self._made(references[0], depth)
        return (producer.name, *(self._made(one, depth - 1) for one in references)) if depth else None

    def _first_values(self, waiting: list[Operation]) -> set[int]:
        """Results that are not zero any more, of operations or of those behind them."""
        found: set[int] = set()
        seen: set[int] = set()
        while waiting:
            operation = waiting.pop()
            zero = self._zeros(Ref(operation.index))
            if zero is None or not bool(zero.all()):
                found.add(operation.index)
            elif operation.index not in seen:
                seen.add(operation.index)
                waiting += [user for user in self.users.get(operation.index, ()) if user.index in self.read]
        return found

    def _zeros(self, argument: object) -> Tensor | None:
        """Elements of an argument that are known to be zero, if there are any."""
        form = self.values.get(argument.index) if isinstance(argument, Ref) else None
        if not isinstance(form, Form) or form.addends or not form.has_zeros:
            return None
        return functools.reduce(torch.logical_or, (term == ANYTHING for term in form.terms))

    def everywhere(self, index: int) -> Read:
        """Places of a value that are read, be it by way of another arrangement of the same elements."""
        noted = self.taken if index in self.taken else self.read
        producer, position = self.producers.get(index), 0
        if producer is not None and producer.name == "getitem":
            whole, position = producer.arguments
            producer = self.producers.get(whole.index)
        source = None if producer is None else self.source(producer)
        if noted[index] is None or producer is None or source is None or source not in noted:
            return noted[index]
        above = self.everywhere(source)
        if above is None:
            return None
        found = self.run(producer, above.expand(tuple(self.shapes[source].shape)))[position]
        return None if bool(found.all()) else squeezed(found)


def _made_of_tensors(graph: Graph) -> set[int]:
    """Values that are made of the model's tensors and constants alone."""
    found = {leaf.index for leaf in graph.leaves if leaf.kind != "input"}
    for operation in graph.operations:
        found |= {operation.index} if found.issuperset(operation.references()) else set()
    return found
