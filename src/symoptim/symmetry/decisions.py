"""Values that Python asks for, and decisions of which not all outcomes have been seen.

    if x.sum() > 0: ...        asks for a truth value; the rest of the pass follows from the answer
    n = int(mask.sum())        asks for a number; no pass shows what others lead to

The path of a pass follows from its answers, in order: two passes with the same answers do the same. So the
passes form a tree, with a question at every branching. Where both answers to a question were given, after the
same answers before it, nothing is unknown.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symoptim.symmetry.graph import Graph, Leaf, Operation, Ref, mapped, once
from symoptim.symmetry.recorder import EARLIER
from symoptim.symmetry.rules.blind import BLIND, KEEPING, LOOKUPS
from symoptim.symmetry.rules.pointwise import COPIES
from symoptim.symmetry.tensors import can_move

ASKS = ("_local_scalar_dense", "equal")
"""Operations that hand a value to Python: ``if``, ``item()``, ``torch.equal``."""

TO_SPARSE = tuple(f"_to_sparse{kind}" for kind in ("", "_csr", "_csc", "_bsr", "_bsc"))
"""Operations whose results have as many entries as there are values other than zero."""
ENTRIES = (
    "_nnz",
    "values",
    "_values",
    "indices",
    "_indices",
    "crow_indices",
    "col_indices",
    "ccol_indices",
    "row_indices",
)
"""Operations that hand entries of a sparse tensor on: then it is seen how many there are."""
UNTOLD = (*ENTRIES, "_pack_padded_sequence")
"""Operations of which torch does not say that sizes of results follow from values; export takes these for
what they are in the example."""
MASKS = (torch.bool, torch.uint8)
"""Types of tensors that, as an index, choose where they are true."""


class Answer(NamedTuple):
    """A value that a module has asked for."""

    place: str
    cause: str
    """What it comes from."""
    value: bool | None
    """None if it is no truth value."""
    question: int = 0
    """A number for what is asked, the same with other sizes."""


class Decision(NamedTuple):
    """A module in which something decides the path, and not all that it may lead to was seen."""

    place: str
    reason: str
    unseen: bool
    """Whether it was never seen to go another way."""


def answers(graph: Graph, known: Mapping[str, int], exported: bool = False) -> list[Answer]:
    """What Python has asked for in a pass, if it may be another value next time.

    Args:
        graph: of the pass.
        known: how often modules ask for values, whatever these are, by an exported graph.
        exported: whether there is one; sizes that depend on values decide nothing then.
    """
    asked = [(one, cause) for one, cause in _asked(graph) if not exported or one.name in (*ASKS, *UNTOLD)]
    often = Counter(one.place for one, _ in asked)
    if not asked:
        return []
    keys, questions, seen = value_keys(graph), value_keys(graph, numbers=False), set[int]()
    found: list[Answer] = []
    for one, cause in asked:
        if often[one.place] > known.get(one.place, 0) and keys[one.index] not in seen:
            seen.add(keys[one.index])  # the same question has the same answer
            value = one.result if isinstance(one.result, bool) else None
            found.append(Answer(one.place, cause, value, questions[one.index]))
    return found


@once
def value_keys(graph: Graph, *, numbers: bool = True) -> dict[int, int]:
    """Numbers that are equal for results of the same operations on the same values.

    Args:
        graph: of a pass.
        numbers: whether arguments that are no tensors count (they may be sizes), and what is drawn.
    """
    keys = {leaf.index: hash(leaf.kind if leaf.kind == "constant" else leaf.name) for leaf in graph.leaves}

    def key(argument: object) -> Any:
        if isinstance(argument, Ref):
            return keys.get(argument.index)
        return argument if numbers else None

    for one in graph.operations:
        arguments, named = mapped(key, (one.arguments, dict(one.keywords)))
        if one.name in (*COPIES, "expand") and not (numbers and (one.arguments[1:] or one.keywords)):
            keys[one.index] = arguments[0]
        elif one.name == "getitem":
            keys[one.index] = hash((arguments[0], one.arguments[1]))
        else:
            drawn = one.index if numbers and _draws(one) else 0
            keys[one.index] = hash((one.name, str(arguments), str(named), drawn))
    return keys


def undecided(passes: Sequence[Sequence[Answer]]) -> Iterator[Decision]:
    """Questions to which only one of the answers was given, after the same answers before."""
    following: dict[int, set[bool | None]] = {}
    at: dict[int, Answer] = {}
    given: dict[str, set[bool | None]] = {}
    for one in passes:
        before = 0
        for answer in one:
            question = hash((before, answer.place, answer.question))
            following.setdefault(question, set()).add(answer.value)
            given.setdefault(answer.place, set()).add(answer.value)
            at[question] = answer
            before = hash((question, answer.value))
    for question, values in following.items():
        if values != {False, True}:
            place, cause = at[question][:2]
            reason = f"{cause} are asked for by Python and may decide the path"
            yield Decision(place, reason, unseen=given[place] != {False, True})


def follow_from_answers(passes: Sequence[tuple[Sequence[Answer], Any]]) -> bool:
    """Whether passes with the same answers do the same."""
    done: dict[tuple[Answer, ...], Any] = {}
    return all(done.setdefault(tuple(asked), path) == path for asked, path in passes)


def about_values(graph: Graph) -> set[int]:
    """Numbers of operations by which Python asks for values that may be others next time."""
    return {operation.index for operation, _ in _asked(graph)}


@once
def _asked(graph: Graph) -> list[tuple[Operation, str]]:
    """Operations that hand to Python a value which may be another one next time, and what it comes from."""
    found: list[tuple[Operation, str]] = []
    written = {name for name, _ in graph.mutated}
    causes: dict[int, str] = {}
    masks = {leaf.index for leaf in graph.leaves if leaf.tensor.dtype in MASKS}
    sparse: set[int] = set()
    for leaf in graph.leaves:
        if leaf.kind == "input" and leaf.name.startswith("input "):
            causes[leaf.index] = "values of the inputs"
        elif leaf.name in written:
            causes[leaf.index] = "values of buffers"
        elif leaf.name.startswith(EARLIER) or (leaf.kind == "constant" and graph.kept):
            causes[leaf.index] = "values of an earlier call"
    for operation in graph.operations:
        cause = next((causes[index] for index in operation.references() if index in causes), "")
        if not cause and _draws(operation):
            cause = "random values"
        if cause:
            causes[operation.index] = cause
            if operation.name in ASKS or _has_size_by_values(operation, masks, sparse):
                found.append((operation, cause))
            result = operation.result
            masks |= {operation.index} if isinstance(result, Tensor) and result.dtype in MASKS else set()
            sparse |= {operation.index} if _is_sparse(operation, sparse) else set()
    return found


def ignores_values(graph: Graph) -> bool:
    """Whether a pass on other values of the same sizes does the same operations.

    They neither ask for values nor refuse any; where places are looked up, these are the same for all values,
    or an input, whose range other values keep. What the model keeps from call to call, and an exception that
    it catches, may tell it something.
    """
    if graph.kept or graph.raised or _asked(graph):
        return False
    written = {name for name, _ in graph.mutated}
    varying = {leaf.index for leaf in graph.leaves if leaf.name in written or _varies(leaf)}
    places = {leaf.index for leaf in graph.leaves if leaf.kind == "input" and not can_move(leaf.tensor)}
    for one in graph.operations:
        references = one.references()
        if not varying.isdisjoint(references) or not places.isdisjoint(references) or _draws(one):
            if one.name in LOOKUPS and not varying.isdisjoint(references[1:]):
                return False
            if one.name not in LOOKUPS and not _is_blind(one):
                return False
            keeps = one.name in KEEPING and varying.isdisjoint(references)
            (places if keeps else varying).add(one.index)
    return True


def _is_blind(operation: Operation) -> bool:
    """Whether an operation does the same whatever the values are."""
    if operation.name == "bernoulli":  # with a number, as in dropout, or with probabilities, which it checks
        return any(isinstance(one, float) for one in operation.arguments)
    return operation.name in BLIND and not operation.keywords.get("rounding_mode")


def _varies(leaf: Leaf) -> bool:
    """Whether a leaf has other values in other passes, inputs of whole numbers aside."""
    return leaf.name.startswith(EARLIER) or (leaf.kind != "constant" and can_move(leaf.tensor))


def _is_sparse(operation: Operation, sparse: Collection[int]) -> bool:
    """Whether a result has entries where values of a dense tensor are not zero."""
    if operation.name in TO_SPARSE:
        return True
    made = isinstance(operation.result, Tensor) and operation.result.layout != torch.strided
    return made and not set(operation.references()).isdisjoint(sparse)


def _has_size_by_values(operation: Operation, masks: Collection[int], sparse: Collection[int]) -> bool:
    """Whether the size of a result tells Python of values: how many are not zero, or different.

    Args:
        operation: any.
        masks: numbers of values that choose where they are true.
        sparse: numbers of sparse tensors that were made of dense ones. Entries of one that is given are as
            many as the caller gives.
    """
    if operation.name == "index":  # by numbers it is as many as these
        return any(index in masks for index in operation.references()[1:])
    if operation.name in ENTRIES:
        return not set(operation.references()).isdisjoint(sparse)
    if operation.name == "_pack_padded_sequence":
        return True
    return torch.Tag.dynamic_output_shape in getattr(operation.function, "tags", ())


def _draws(operation: Operation) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(operation.function, "tags", ())
