"""What notes the operations of a forward pass."""

import gc
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from operator import getitem
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.errors import TraceError
from symoptim.symmetry.graph import Graph, Kind, Leaf, Operation, Ref, name_of

_module: Any = torch.nn.modules.module  # torch leaves hooks of all modules untyped


class Part(NamedTuple):
    """One of several results: of which operation, which one, and where."""

    whole: int
    position: int
    place: str


class Recorder(TorchDispatchMode):
    """Notes every operation while it is entered; values are known by their identity, and kept alive."""

    def __init__(self, model: nn.Module) -> None:
        """Begin with nothing noted."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
        self.names = {id(module): name for name, module in named}
        # Whatever tensor there is now can be no result of the pass: it is a constant.
        self.there_before = {id(one) for one in gc.get_objects() if issubclass(type(one), Tensor)}
        self.stack: list[str] = []
        self.number: dict[int, int] = {}
        self.parts: dict[int, Part] = {}
        self.alive: list[Any] = []
        self.in_memory: dict[int, set[int]] = {}
        self.leaves: list[Leaf] = []
        self.operations: list[Operation] = []
        self.mutated: dict[str, Ref] = {}

    def add_leaf(self, tensor: Tensor, kind: Kind, name: str, *, original: Tensor) -> int:
        """Note a value that is there from the beginning."""
        index = self._new(tensor)
        self.leaves.append(Leaf(index, kind, name, original))
        return index

    def _new(self, value: Any) -> int:
        index = len(self.alive)
        self.alive.append(value)
        self.number[id(value)] = index
        for one in tree_leaves(value):
            if isinstance(one, Tensor):
                self.in_memory.setdefault(_memory(one), set()).add(id(one))
        return index

    def refer(self, value: Any, *, literal: bool = False) -> Any:
        """A reference to a tensor; a constant if it was there before, or is a number written down."""
        if not isinstance(value, Tensor):
            return value
        if id(value) in self.parts:
            self._take(value, self.parts.pop(id(value)))
        index = self.number.get(id(value))
        if index is None:
            if not literal and id(value) not in self.there_before:
                raise TraceError(
                    f"a tensor of shape {tuple(value.shape)} comes from where torch does not see"
                )
            index = self.add_leaf(value, "constant", f"constant {len(self.alive)}", original=value.clone())
        return Ref(index)

    def _take(self, value: Tensor, part: Part) -> None:
        """Note that one of several results is used."""
        whole, shape = (Ref(part.whole), part.position), _shape_alone(value)
        self.operations.append(Operation(self._new(value), "getitem", getitem, whole, {}, shape, part.place))

    def places(self) -> ExitStack:
        """Keep track of the module that is at work."""

        def enter(module: nn.Module, _: Any) -> None:
            self.stack.append(self.names.get(id(module), self.stack[-1] if self.stack else ""))

        def leave(*_: Any) -> None:
            self.stack.pop()

        stack = ExitStack()
        stack.callback(_module.register_module_forward_pre_hook(enter).remove)
        stack.callback(_module.register_module_forward_hook(leave, always_call=True).remove)
        return stack

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, keywords = name_of(func), dict(kwargs or {})
        refer = partial(self.refer, literal=name.startswith("lift_fresh"))
        arguments, named = tree_map(refer, tuple(args)), tree_map(refer, keywords)
        alone = name.endswith("_") and self._is_alone(args[0])
        result = func(*args, **keywords)
        if name == "copy_":  # functionalize writes back what became of a buffer
            self._write_back(arguments[0], arguments[1])
            return result
        # If nobody else sees its memory, a tensor that is written to is as good as a new one.
        self._note(name.removesuffix("_") if alone else name, func, arguments, named, result)
        return result

    def _is_alone(self, tensor: Any) -> bool:
        """Whether no other value lies in the memory of this one."""
        return isinstance(tensor, Tensor) and self.in_memory.get(_memory(tensor)) == {id(tensor)}

    def _write_back(self, target: Ref, value: Ref) -> None:
        names = [leaf.name for leaf in self.leaves if leaf.index == target.index and leaf.kind == "buffer"]
        self.mutated.update(dict.fromkeys(names, value))

    def _note(self, name: str, func: Any, arguments: tuple[Any, ...], keywords: Any, result: Any) -> None:
        place = self.stack[-1] if self.stack else ""
        index = self._new(result)
        shapes = tree_map(_shape_alone, result)
        self.operations.append(Operation(index, name, func, arguments, keywords, shapes, place))
        if isinstance(result, list | tuple):
            for position, part in enumerate(cast("Sequence[Any]", result)):
                self.parts[id(part)] = Part(index, position, place)

    def graph(self, output: Any) -> Graph:
        """All that was noted, and what came out."""
        outputs: list[Any] = tree_leaves(output)
        refs = tuple(self.refer(one) for one in outputs if isinstance(one, Tensor))
        return Graph(tuple(self.leaves), tuple(self.operations), refs, tuple(self.mutated.items()))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _shape_alone(value: Any) -> Any:
    """A tensor without values: those of a whole pass would fill the memory."""
    return value.detach().to("meta") if isinstance(value, Tensor) else value
