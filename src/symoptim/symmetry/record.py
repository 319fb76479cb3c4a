"""From a model to its graph, by watching one real forward pass: for models that cannot be exported.

``if`` and loops over values are no hindrance: what was looked at is an operation like any other, has no
rule, and is pinned, so that every rescaling takes the same way through the model. In-place operations are
turned into values by ``torch.func.functionalize``.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.errors import TraceError
from symoptim.symmetry.graph import Graph, Kind, Leaf, Operation, Ref, name_of

_module: Any = torch.nn.modules.module  # torch leaves hooks of all modules untyped


def record(model: nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any] | None = None) -> Graph:
    """Run a model once and note every operation; it is left as it is.

    Args:
        model: the network.
        inputs: positional arguments of a call; their values decide which way it goes.
        keywords: its other arguments.

    Returns:
        The graph of that way.

    Raises:
        TraceError: values leave torch, and may come back.
    """
    tensors: dict[str, Tensor] = {name: tensor.detach() for name, tensor in model.named_parameters()}
    parameters = frozenset(tensors)
    tensors |= {name: tensor.detach().clone() for name, tensor in model.named_buffers()}
    recorder, saved = _Recorder(model), model.state_dict()
    originals = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in tensors.items():
        moves = name in saved or not tensor.is_floating_point()  # what is not saved is made anew by others
        kind = "parameter" if name in parameters else "buffer" if moves else "input"
        recorder.add_leaf(tensor, kind, name, original=originals[name])
    given: list[Any] = tree_leaves((inputs, dict(keywords or {})))
    for number, tensor in enumerate(given):
        if isinstance(tensor, Tensor):
            recorder.add_leaf(tensor, "input", f"input {number}", original=tensor)

    def run(tensors: dict[str, Tensor], inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return functional_call(model, tensors, inputs, keywords)

    with ExitStack() as stack:
        stack.enter_context(cast("Any", torch).random.fork_rng())  # what dropout draws is not missing later
        stack.enter_context(
            cast("Any", sdpa_kernel)(SDPBackend.MATH)
        )  # written out, attention has no kernels of its own
        stack.enter_context(recorder.places())
        stack.enter_context(_NoDetours())
        stack.enter_context(recorder)
        output = cast("Any", functionalize)(run)(tensors, inputs, dict(keywords or {}))
    return recorder.graph(output)


class _NoDetours(TorchFunctionMode):
    """Refuses to hand values to what cannot be watched, and whose results would look like constants."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in DETOURS:
            raise TraceError(
                f"the model calls {func.__name__}() on a tensor and goes on with what torch does not see: "
                "stay within torch's own operations"
            )
        return func(*args, **(kwargs or {}))


_tensor: Any = Tensor  # torch leaves some of its methods untyped
DETOURS = (_tensor.numpy, _tensor.tolist, _tensor.__array__, _tensor.__dlpack__, _tensor.untyped_storage)


class _Recorder(TorchDispatchMode):
    """Notes every operation between :meth:`__enter__` and :meth:`__exit__`."""

    def __init__(self, model: nn.Module) -> None:
        """Begin with nothing noted."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
        self.names = {id(module): name for name, module in named}
        self.held = {id(value) for module in model.modules() for value in vars(module).values()}
        self.stack: list[str] = []
        self.number: dict[int, int] = {}  # by identity, which is kept alive
        self.alive: list[Any] = []
        self.leaves: list[Leaf] = []
        self.operations: list[Operation] = []
        self.mutated: dict[str, Ref] = {}
        self.count = 0

    def add_leaf(self, tensor: Tensor, kind: Kind, name: str, *, original: Tensor) -> int:
        """Note a value that is there from the beginning."""
        index = self._new(tensor)
        self.leaves.append(Leaf(index, kind, name, original))
        return index

    def _new(self, value: Any) -> int:
        self.alive.append(value)
        self.number[id(value)] = self.count
        self.count += 1
        return self.count - 1

    def refer(self, value: Any, *, literal: bool = False) -> Any:
        """A reference to a tensor; a constant if the model holds it, or it is a number written down."""
        if not isinstance(value, Tensor):
            return value
        index = self.number.get(id(value))
        if index is None:
            if not literal and id(value) not in self.held:
                raise TraceError(
                    f"a tensor of shape {tuple(value.shape)} comes from where torch does not see"
                )
            index = self.add_leaf(
                value, "constant", f"constant {self.count}", original=value.detach().clone()
            )
        return Ref(index)

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
        keywords = dict(kwargs or {})
        refer = partial(self.refer, literal=name_of(func).startswith("lift_fresh"))
        arguments, named = tree_map(refer, tuple(args)), tree_map(refer, keywords)
        result = func(*args, **keywords)
        if name_of(func) == "copy_":  # functionalize writes back what became of a buffer
            self._write_back(arguments[0], arguments[1])
            return result
        self._note(func, arguments, named, result)
        return result

    def _write_back(self, target: Ref, value: Ref) -> None:
        names = [leaf.name for leaf in self.leaves if leaf.index == target.index and leaf.kind == "buffer"]
        self.mutated.update(dict.fromkeys(names, value))

    def _note(self, func: Any, arguments: tuple[Any, ...], keywords: Any, result: Any) -> None:
        place = self.stack[-1] if self.stack else ""
        index = self._new(result)
        shapes = tree_map(_shape_alone, result)
        self.operations.append(Operation(index, name_of(func), func, arguments, keywords, shapes, place))
        if isinstance(result, list | tuple):
            for position, part in enumerate(cast("Sequence[Any]", result)):
                if isinstance(part, Tensor):
                    taken = self._new(part)
                    self.operations.append(
                        Operation(
                            taken, "getitem", func, (Ref(index), position), {}, _shape_alone(part), place
                        )
                    )

    def graph(self, output: Any) -> Graph:
        """All that was noted, and what came out."""
        outputs: list[Any] = tree_leaves(output)
        refs = tuple(self.refer(one) for one in outputs if isinstance(one, Tensor))
        return Graph(tuple(self.leaves), tuple(self.operations), refs, tuple(self.mutated.items()))


def _shape_alone(value: Any) -> Any:
    """A tensor without values: those of a whole pass would fill the memory."""
    return value.detach().to("meta") if isinstance(value, Tensor) else value
