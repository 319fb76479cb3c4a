"""Walk a graph and let every operation say what it has to say about scales.

An operation without a rule, a rule that cannot tell or fails, a result of the wrong shape: everything the
operation touches is pinned. More equations can only make the group smaller, so nothing false is ever found.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from symoptim.symmetry.ansatz import Ansatz, leaf_form
from symoptim.symmetry.constants import known_values
from symoptim.symmetry.form import FIXED, Form, anything, fixed
from symoptim.symmetry.frames import crossings
from symoptim.symmetry.graph import Graph, Kind, Leaf, Operation, Ref, has_plain_sizes
from symoptim.symmetry.memory import sharing
from symoptim.symmetry.rules import RULES
from symoptim.symmetry.rules.registry import SEES_DEFERRED, Context, Result, users_of
from symoptim.symmetry.system import System
from symoptim.symmetry.tensors import can_move, keeps_digits, on_cpu
from symoptim.symmetry.unread_places import Pass, tie_unread

MOVING: tuple[Kind, ...] = ("parameter", "buffer")
Value = Form | tuple[Any, ...] | None


@dataclass(slots=True)
class Findings:
    """Forms of the model's tensors by name, the equations, and what was pinned or is not exact."""

    system: System
    tensors: dict[str, Form] = field(default_factory=dict[str, Form])
    buffers: set[str] = field(default_factory=set[str])
    """Those that are no parameters."""
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    """Other names of tied tensors, and the name they are listed by."""
    origins: list[tuple[int, tuple[str, str]]] = field(default_factory=list[tuple[int, tuple[str, str]]])
    """First unknown that each tensor or operation brought, its place and its name: for generators' names."""
    unknown: "Counter[tuple[str, str]]" = field(default_factory=lambda: Counter[tuple[str, str]]())
    """Operations nothing is known about, and their places."""
    pinned: "Counter[str]" = field(default_factory=lambda: Counter[str]())
    """Operations whose arguments cannot scale."""
    approximate: "Counter[tuple[str, str, float]]" = field(
        default_factory=lambda: Counter[tuple[str, str, float]]()
    )
    """Operations that are exact only up to a constant, their places, the constant."""

    def said(self) -> "tuple[Counter[Any], ...]":
        """What was counted so far; counting begins anew."""
        counted = self.unknown, self.pinned, self.approximate
        self.unknown, self.pinned, self.approximate = Counter(), Counter(), Counter()
        return counted

    def merge(self, before: "tuple[Counter[Any], ...]") -> None:
        """Operations count once, on however many paths they are: as often as on the first one."""
        for mine, theirs in zip((self.unknown, self.pinned, self.approximate), before, strict=True):
            mine.update({key: number - mine[key] for key, number in theirs.items()})


@on_cpu
def interpret(
    graphs: Sequence[Graph],
    ansatz: Ansatz = "separable",
    exposed: frozenset[str] = frozenset(),
    called: frozenset[str] = frozenset(),
) -> Findings:
    """Write all equations of a model; its outputs are pinned.

    Args:
        graphs: of different paths through it; what is found holds on all of them.
        ansatz: how general parameters may scale.
        exposed: modules of which all that their ``forward`` sees is pinned (:mod:`.paths`).
        called: modules that were called.

    Returns:
        What was found.
    """
    findings = Findings(System(), origins=[(1, ("parameter", ""))])
    leaves = [leaf for graph in graphs for leaf in graph.leaves]
    tensors = [leaf.tensor for leaf in leaves if leaf.kind in MOVING]
    others = [leaf.tensor for leaf in leaves if leaf.kind not in MOVING and _is_there(leaf.tensor)]
    # Tensors that may not be scaled have no name from the beginning.
    by_tensor: dict[int, str | None] = dict.fromkeys(sharing(tensors, others))
    users: dict[str, list[Operation]] = {}
    for graph in graphs:
        of_graph = users_of(graph)
        for leaf in graph.leaves:
            users.setdefault(leaf.name, []).extend(one for one in of_graph.get(leaf.index, ()) if one)
    passes: list[Pass] = []
    for graph in graphs:
        forms: dict[int, Form] = {}
        for leaf in graph.in_order_of_use():
            findings.origins.append((findings.system.count, (leaf.name, "")))
            forms[leaf.index] = _leaf(findings, leaf, users[leaf.name], ansatz, by_tensor)
        before = findings.said()
        passes.append(_walk(findings, graph, forms, crossings(graph, exposed, called)))
        findings.merge(before)
    tie_unread(findings.system, passes)
    return findings


def _walk(findings: Findings, graph: Graph, forms: dict[int, Form], seen: Collection[int]) -> Pass:
    """Write the equations of one path; values that are ``seen`` in exposed frames are pinned."""
    values: dict[int, Value] = dict(forms)
    known = known_values(graph)
    read = graph.parts_read()
    producers = {operation.index: operation for operation in graph.operations}
    users = users_of(graph)
    for operation in graph.operations:
        findings.origins.append((findings.system.count, (operation.place, operation.name)))
        context = Context(
            findings.system, operation, producers, known=known, read=read[operation.index], users=users
        )
        values[operation.index] = _result(findings, context, values)
    for index in seen:
        for form in _forms(values.get(index)):
            findings.system.pin(form)
    _close(findings, graph, values)
    return Pass(graph, values, known)


def _is_there(tensor: Tensor) -> bool:
    """Whether it has a memory: inputs of an exported program have none."""
    return type(tensor) in (Tensor, nn.Parameter)


def _leaf(
    findings: Findings,
    leaf: Leaf,
    users: list[Operation],
    ansatz: Ansatz,
    by_tensor: dict[int, str | None],
) -> Form:
    tensor = leaf.tensor
    # A buffer that is not used now may be used another time: it stays what it is.
    moves = leaf.kind == "parameter" or (leaf.kind == "buffer" and bool(users))
    if moves and can_move(tensor):
        first = by_tensor.setdefault(id(tensor), leaf.name)
        if first is None:
            return fixed(tensor.shape)
        if first != leaf.name:
            findings.aliases[leaf.name] = first
        elif leaf.name not in findings.tensors:
            findings.tensors[leaf.name] = leaf_form(findings.system, users, leaf, ansatz)
            findings.buffers.update({leaf.name} if leaf.kind == "buffer" else ())
        return findings.tensors[first]
    # A buffer that is zero now may be something else tomorrow, and so may what shares memory with a weight.
    constant = leaf.kind == "constant" and id(tensor) not in by_tensor
    zero = constant and tensor.numel() > 0 and not tensor.is_meta and not bool(tensor.any())
    return anything(tensor.shape) if zero else fixed(tensor.shape)


def _result(findings: Findings, context: Context, values: dict[int, Value]) -> Value:
    operation = context.operation

    def look_up(argument: Any) -> Any:
        if isinstance(argument, Ref):
            value = values.get(argument.index)  # what is no tensor is some number
            if isinstance(value, Form) and operation.name not in SEES_DEFERRED:
                return findings.system.settle(value)
            return math.nan if value is None else value
        if isinstance(argument, list | tuple):
            return [look_up(one) for one in argument]  # pyright: ignore[reportUnknownVariableType]
        return argument

    if operation.name == "getitem":
        whole = values.get(operation.arguments[0].index)
        return whole[operation.arguments[1]] if isinstance(whole, tuple) else whole
    arguments = [look_up(argument) for argument in operation.arguments]
    keywords = {name: look_up(argument) for name, argument in operation.keywords.items()}
    pins = findings.system.pins
    result = _judged(context, arguments, keywords)
    findings.pinned.update([operation.name] if findings.system.pins > pins else [])
    if result is None and (operation.result is not None or operation.name not in RULES):
        result = _pinned(findings, operation, [*arguments, *keywords.values()])
    for constant in context.approximations:
        findings.approximate[operation.name, operation.place, constant] += 1
    return result


def _judged(context: Context, arguments: Sequence[object], keywords: dict[str, Any]) -> Result:
    """What the rule says; None where there is none, or it is not to be trusted."""
    rule: Callable[..., Result] | None = RULES.get(context.operation.name)
    if rule is None:
        return None
    try:
        result = rule(context, *arguments, **keywords)
        return result if _fits(result, context.operation.result) else None
    except Exception:  # it cannot tell, or its author did not think of this use: pinning is right
        return None


def _fits(result: object, expected: object) -> bool:
    """Whether forms have the shapes of the tensors they are to describe."""
    if isinstance(expected, list | tuple):
        pairs = list(zip(result, expected, strict=False)) if isinstance(result, tuple) else []  # pyright: ignore
        return len(pairs) == len(expected) and all(_fits(one, other) for one, other in pairs)  # pyright: ignore
    if not isinstance(expected, Tensor):
        return True
    if not has_plain_sizes(expected) or not isinstance(result, Form) or result.shape != tuple(expected.shape):
        return False
    if not keeps_digits(expected) and not _stands(result):
        return False  # rounding is not homogeneous
    return all(
        term.dim() == len(result.shape)
        and all(size in (1, whole) for size, whole in zip(term.shape, result.shape, strict=True))
        for term in result.terms
    )


def _pinned(findings: Findings, operation: Operation, arguments: Sequence[object]) -> Value:
    """Pin everything an operation touches, and say so if there was anything that could move."""
    touched = [form for form in _forms(arguments) if not _stands(form)]
    if touched:
        findings.unknown[operation.name, operation.place] += 1
    for form in touched:
        findings.system.pin(form)
    result = operation.result
    if isinstance(result, Tensor):
        return fixed(result.shape)
    if isinstance(result, list | tuple):
        return tuple(fixed(one.shape) if isinstance(one, Tensor) else None for one in result)  # pyright: ignore
    return None


def _stands(form: Form) -> bool:
    """Whether nothing of a tensor can move, whatever the equations."""
    return form.is_settled and all(bool((term <= FIXED).all()) for term in form.terms)


def _forms(arguments: Any) -> Iterator[Form]:
    if isinstance(arguments, Form):
        yield arguments
    elif isinstance(arguments, list | tuple):
        for argument in arguments:  # pyright: ignore[reportUnknownVariableType]
            yield from _forms(argument)


def _close(findings: Findings, graph: Graph, values: dict[int, Value]) -> None:
    """Outputs do not change; what is written back has the scale it had, or does not change either."""
    for output in graph.outputs:
        for form in _forms(values.get(output.index)):
            findings.system.pin(form)
    for name, value in graph.mutated:
        there = findings.tensors.get(findings.aliases.get(name, name))
        for after in _forms(values.get(value.index)):
            if there is None:
                findings.system.pin(after)
            else:
                findings.system.same(findings.system.settle(after), there)
