"""From a model to its graph, by ``torch.export``: functional, with meaningful operations kept whole.

An empty table of decompositions turns everything in-place into values and keeps linear, convolution,
normalization and attention as they are; operations without a rule are then decomposed, those alone. A model
may ask whether it is being exported, so the program is run once and compared with the model.
"""

import functools
import operator
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.symmetry.copies import copied, isolated
from symoptim.symmetry.environment import quietly, seeds_restored, set_seeds
from symoptim.symmetry.failures import not_exported, require_plain
from symoptim.symmetry.graph import Graph, Kind, Leaf, Operation, Ref, name_of
from symoptim.symmetry.limits import RangesChecked
from symoptim.symmetry.memory import reached_otherwise
from symoptim.symmetry.tensors import left_alone, model_tensors, plain_tensors, tensors_in

KINDS: dict[InputKind, Kind] = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}


def trace(
    model: nn.Module,
    inputs: tuple[object, ...],
    keywords: Mapping[str, object] | None = None,
    *,
    known: Container[str],
    compare: bool = False,
) -> Graph:
    """Trace a model on example inputs; it is left as it is.

    Args:
        model: the network, in the mode whose symmetries are wanted.
        inputs: positional arguments of a call.
        keywords: its other arguments.
        known: names of operations that are to be kept whole.
        compare: whether to run the model and what was exported, and to require that both do the same.

    Returns:
        The graph.

    Raises:
        NotExportable: for a reason of torch's, or because the model does something else when it is exported.
    """
    require_plain(model)
    fresh = isolated(model) if compare else model  # exporting may leave tensors without values in lists
    with quietly(), left_alone(model), seeds_restored(), _failing_quietly(model):
        before = set(map(id, plain_tensors(model)))
        try:
            # torch leaves the decomposing untyped
            program: Any = torch.export.export(model, inputs, dict(keywords or {}), strict=False)
            program = program.run_decompositions({})
            table = _needed(program, known)
            program = program.run_decompositions(table) if table else program
            graph = _graph(program, model)
        except Exception as failure:  # whatever torch has to say about a model that runs all the same
            raise NotExportable(not_exported(failure.__cause__ or failure)) from failure
        if any(id(tensor) not in before for tensor in plain_tensors(model)):
            raise NotExportable("the model keeps tensors in attributes that are no buffers")
        if compare and not does_the_same(program, fresh, inputs, keywords or {}):
            raise NotExportable("the exported program fails, or computes something else than the model")
    return graph


class _Failed(Exception):  # noqa: N818 - caught in this file
    """The model's forward has failed, for the reason that is its cause."""


@contextmanager
def _failing_quietly(model: nn.Module) -> Generator[None]:
    """Let forward fail with an exception of ours: of its own torch would print all that it has traced."""
    attributes = vars(model)
    own: Callable[..., Any] | None = attributes.get("forward")

    @functools.wraps(own or type(model).forward)
    def forward(self: nn.Module, *inputs: object, **keywords: object) -> Any:
        try:
            return own(*inputs, **keywords) if own else type(model).forward(self, *inputs, **keywords)
        except Exception as failure:
            raise _Failed from failure

    attributes["forward"] = MethodType(forward, model)
    try:
        yield
    finally:
        del attributes["forward"]
        attributes.update({"forward": own} if own else {})


class NotExportable(Exception):  # noqa: N818 - caught in this package, which then records a call
    """A model cannot be exported, for this reason."""


def _needed(program: ExportedProgram, known: Container[str]) -> dict[Any, Any]:
    """Decompositions of operations that are not known."""
    unknown = {node.target for node in program.graph.nodes if node.op == "call_function"}
    unknown = {target for target in unknown if name_of(target) not in known}
    table = torch.export.default_decompositions()
    return {target: table[target] for target in unknown if target in table}


def _graph(program: ExportedProgram, model: nn.Module) -> Graph:
    number: dict[Node, int] = {}
    named: dict[str, int] = {}
    leaves: list[Leaf] = []
    operations: list[Operation] = []
    specs = {getattr(spec.arg, "name", ""): spec for spec in program.graph_signature.input_specs}
    tensors = model_tensors(model)
    places = _first_names(model)
    for node in program.graph.nodes:
        index = number[node] = len(number)
        named[node.name] = index
        if node.op == "placeholder":
            leaf = _leaf(index, node, specs.get(node.name), program, tensors)
            leaves += [leaf] if leaf else []
        elif node.op == "call_function":
            operations.append(_operation(index, node, number, places))
    outputs: list[Ref] = []
    mutated: list[tuple[str, Ref]] = []
    for spec in program.graph_signature.output_specs:
        place = named.get(getattr(spec.arg, "name", ""))
        if place is None:
            continue
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            mutated.append((str(spec.target), Ref(place)))
        else:  # what is written into an input is seen outside, too
            outputs.append(Ref(place))
    leaves += [
        Leaf(index, "constant", "memory", tensor)
        for index, tensor in enumerate(reached_otherwise(model), start=len(number))
    ]
    return Graph(tuple(leaves), tuple(operations), tuple(outputs), tuple(mutated))


def _first_names(model: nn.Module) -> dict[str, str]:
    """For every name of a module the first that it has: one that is shared has several."""
    first: dict[nn.Module, str] = {}
    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules(remove_duplicate=False))
    return {name: first.setdefault(module, name) for name, module in named}


def _leaf(
    index: int, node: Node, spec: InputSpec | None, program: ExportedProgram, tensors: Mapping[str, Tensor]
) -> Leaf | None:
    value = node.meta.get("val")
    if spec is None or not isinstance(value, Tensor):
        return None
    kind = KINDS.get(spec.kind, "constant")
    if kind == "buffer" and not spec.persistent and value.is_floating_point():
        kind = "input"  # not saved with the model, so whoever makes it anew would undo its scale
    name = spec.target or node.name
    constants = cast("Mapping[str, Any]", program.constants)
    there = tensors.get(name, constants.get(name))
    return Leaf(index, kind, name, there if isinstance(there, Tensor) else value)


def _operation(index: int, node: Node, number: Mapping[Node, int], places: Mapping[str, str]) -> Operation:
    def refer(other: Node) -> Any:
        return Ref(number[other])

    name = "getitem" if node.target is operator.getitem else name_of(node.target)
    modules = cast("dict[str, tuple[str, Any]]", node.meta.get("nn_module_stack") or {})
    path = [path for path, _ in modules.values()][-1] if modules else ""
    place = places.get(path, path)
    arguments, keywords = cast("Any", map_arg(node.args, refer)), cast("Any", map_arg(node.kwargs, refer))
    return Operation(index, name, cast("Any", node.target), arguments, keywords, node.meta.get("val"), place)


CLOSE = 1e-3  # of the largest output: programs may add in another order


def does_the_same(
    program: ExportedProgram, model: nn.Module, inputs: tuple[object, ...], keywords: Mapping[str, object]
) -> bool:
    """Run both on the same inputs, with the same random numbers, and compare what comes out.

    Args:
        program: of operations that write nowhere.
        model: what was exported; it is left as it is.
        inputs: positional arguments of the call.
        keywords: its other arguments.

    Returns:
        Whether outputs agree; True where the model has none to compare, False where only the program fails.
    """
    arguments: Any = (inputs, dict(keywords))
    if any(not _has_values(one) for one in (*model_tensors(model).values(), *tree_leaves(arguments))):
        return True
    # What torch compiles when it is called, such as torch.cond, must not be called under a mode.
    compiled = any(isinstance(node.target, HigherOrderOperator) for node in program.graph.nodes)
    with seeds_restored(), torch.no_grad(), nullcontext() if compiled else RangesChecked():
        set_seeds(0)
        mine, named = tree_map(_copied, arguments)
        try:
            expected = tensors_in(copied(model, wide=False)(*mine, **named))
        except Exception:  # the model does not run: the next pass says why
            return True
        set_seeds(0)
        try:
            found = _run(program, model, tree_leaves(tree_map(_copied, arguments)))
        except Exception:  # the program does not, of whatever kind: it is another one
            return False
    return len(found) == len(expected) and all(map(_close, found, expected))


def _has_values(value: object) -> bool:
    return not isinstance(value, Tensor) or (type(value) in (Tensor, nn.Parameter) and not value.is_meta)


def _copied(value: object) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _run(program: ExportedProgram, model: nn.Module, given: list[Any]) -> list[Tensor]:
    """What the program returns."""
    tensors, constants = model_tensors(model), cast("Mapping[str, Any]", program.constants)
    rest = iter(given)
    arguments = [
        next(rest)
        if spec.kind is InputKind.USER_INPUT
        else tensors.get(spec.target or "", constants.get(spec.target or ""))
        for spec in program.graph_signature.input_specs
    ]
    results = cast("Iterable[Any]", torch.fx.Interpreter(program.graph_module).run(*arguments))
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    pairs = zip(kinds, results, strict=True)
    return [one for kind, one in pairs if kind is OutputKind.USER_OUTPUT and isinstance(one, Tensor)]


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return bool((one != other).double().mean() < CLOSE) if one.numel() else True
    size = float(other.abs().nan_to_num(0, 0, 0).max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=CLOSE, atol=CLOSE * size, equal_nan=True)
