"""``discover``: from a model and an example input to the group of its rescalings."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator

from symoptim.errors import OptionError, PathWarning, TraceError, first_few, warn_user
from symoptim.modules import modes_of, require_module
from symoptim.symmetry.ansatz import Ansatz
from symoptim.symmetry.calls import calls_of, prepared, unpacked, warn_of_empty
from symoptim.symmetry.constants import with_unknown
from symoptim.symmetry.copies import isolated
from symoptim.symmetry.failures import FailingModelError, described, require_plain
from symoptim.symmetry.form import FIXED
from symoptim.symmetry.graph import Graph, has_symbolic_sizes
from symoptim.symmetry.interpret import Findings, interpret
from symoptim.symmetry.limits import is_out_of_memory
from symoptim.symmetry.memory import reached_twice
from symoptim.symmetry.paths import Survey, is_vouched, patterns, survey, unreached
from symoptim.symmetry.rules import RULES
from symoptim.symmetry.solve import NullSpace, null_space
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import Moved, SymmetrySpec
from symoptim.symmetry.tensors import (
    arguments_of,
    model_tensors,
    on_cpu,
    unique_values,
    values_restored,
    whole_numbers,
)
from symoptim.symmetry.trace import NotExportable, trace
from symoptim.symmetry.variations import Call


def discover(
    model: nn.Module,
    example_inputs: tuple[object, ...],
    keywords: Mapping[str, object] | None = None,
    *,
    inputs: object = None,
    vouch: Sequence[str] = (),
    ansatz: Ansatz = "separable",
) -> SymmetrySpec:
    """Find every positive rescaling of a model's weights that changes none of its outputs.

    The mode of the model counts: in training mode batch normalization hides the scale of its input, in
    evaluation mode running statistics have to move along. The model is left as it is. A model that
    ``torch.export`` cannot trace is called instead, every operation is recorded, and ``recorded`` of the
    result says why.

    The example shows one path through the model. Others are looked for on inputs of other values and sizes,
    and with other random numbers; what is found holds on all that were seen. Where values, chance or Python's
    state decide the path, and around parameters that no pass reaches, all that could meet another path is
    pinned, and a :class:`.PathWarning` says so: give ``inputs`` that take the other paths, and ``vouch`` for
    these modules.

    Args:
        model: the network.
        example_inputs: positional arguments of a call, a tuple or a single tensor. A small one is enough (two
            sequences of eight tokens, say): the model is run on it some thirty times, and all
            intermediate results of a run are in memory together, as in training.
        keywords: its other arguments.
        inputs: more calls, a list; each is a tuple of positional arguments (with the same keywords), a
            dictionary of arguments by name, or a pair of both.
        vouch: patterns (``"encoder.pooler"``, ``"layers.*.experts"``, ``"*"``) of names of modules and
            parameters for which no other path is taken than those of the examples.
        ansatz: ``element`` gives every entry of a parameter an unknown of its own: for tests, it is slow.

    Returns:
        The group; parameters that no pass reaches are not in it.

    Raises:
        OptionError: the model is no ``nn.Module``, or one that cannot be looked into.
        TraceError: the forward pass cannot be watched.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> len(discover(model, (torch.rand(5, 3),)))
    4
    """
    model = require_module(model)
    patterns = _patterns(model, vouch)
    positional = arguments_of(example_inputs)
    first = Call(positional, prepared(model, positional, keywords))
    given = [first, *_calls(model, inputs, first)]
    warn_of_empty(*first)
    visible, calls = _unpacked(model, given)
    require_plain(model)
    # Passes work on copies of the tensors; what else leads to a tensor's memory may let a pass write there.
    with values_restored(reached_twice(model)):
        graphs, seen, recorded = _graphs_of(visible, calls, patterns)
    graphs = [with_unknown(graph, seen.changing) for graph in graphs]
    findings = interpret(graphs, ansatz, seen.exposed, seen.called)
    system = findings.system
    rank = _ranks(findings)
    space = null_space(system.count, system.rows, rank)
    spec = _spec(findings, space, _aliases(model, findings), recorded)
    spec = replace(
        spec,
        modes=modes_of(model),
        unreached=seen.unreached,
        paths=seen.sentences,
        # Copies: whoever fills a buffer with the next batch changes his own.
        examples=tuple(call.changed(lambda _, tensor: tensor.detach().clone()) for call in given),
    )
    if seen.exposed or (seen.first is None and not all(one.is_meta for one in model.parameters())):
        warn_user(_warning(seen), PathWarning)
    return spec


def _patterns(model: nn.Module, vouch: Sequence[str]) -> tuple[str, ...]:
    """What the user vouches for; every pattern has to mean something."""
    patterns = (vouch,) if isinstance(vouch, str) else tuple(vouch)
    named = cast("Iterable[tuple[str, Any]]", model.named_modules())
    names = [name for name, _ in (*named, *model.named_parameters())]
    for pattern in patterns:
        if not isinstance(cast("Any", pattern), str):
            raise OptionError(f"vouch has {pattern!r}, which is no name: give names of modules or parameters")
        if not any(fnmatchcase(name, pattern) for name in names):
            raise OptionError(
                f"vouch={pattern!r} is the name of no module and no parameter: names are like "
                f"{', '.join(map(repr, names[1:4]))}; a star stands for any part of a name"
            )
    return patterns


def _calls(model: nn.Module, inputs: object, first: Call) -> Iterator[Call]:
    """More examples; where only positional arguments are given, with the keywords of the first."""
    for positional, keywords in calls_of(inputs) if inputs is not None else ():
        yield Call(positional, prepared(model, positional, first.keywords if keywords is None else keywords))


def _unpacked(model: nn.Module, given: Sequence[Call]) -> tuple[nn.Module, list[Call]]:
    """Calls in which torch sees all tensors, and what to call."""
    opened = [unpacked(model, call.inputs, call.keywords) for call in given]
    if any((stand_in is model) != (opened[0][0] is model) for stand_in, _, _ in opened):
        raise OptionError("all examples in inputs= must have arguments of the classes of the first")
    return opened[0][0], [Call(arguments, keywords) for _, arguments, keywords in opened]


def _warning(seen: Survey) -> str:
    """What is not known of the paths through a model, and the way out."""
    if not seen.doubtful:
        return f"{'; '.join(seen.sentences)}; nothing was pinned for others, so that they may differ"
    said = list(seen.doubts)
    if seen.unreached:
        said.append(f"no pass reached {first_few(seen.unreached)}")
    names = ", ".join(f'"{name}"' for name in seen.doubtful)
    return (
        f"other paths through the model are possible ({'; '.join(said)}). Symmetries that these could break "
        f"were left out: give examples of them in inputs=[...], or write vouch=[{names}] if there are none"
    )


def _graphs_of(
    model: nn.Module, calls: Sequence[Call], vouch: Sequence[str]
) -> tuple[list[Graph], Survey, str]:
    """Graphs of all paths that were seen, what is known of others, and why passes had to be recorded."""
    graph, recorded = _traced(model, calls[0], compare=True)
    try:
        if graph is not None:
            _require_plain_operations(graph)
        seen = survey(model, calls, vouch, graph)
    except OptionError:
        raise
    except Exception as failure:  # of watching: on the meta device there are no values to ask for, say
        if (
            is_out_of_memory(failure)
            or graph is None
            or (isinstance(failure, FailingModelError) and _have_values(model, calls))
        ):
            raise
        seen = _exported(model, calls, vouch, graph, failure)
    if graph is not None and seen.first is not None:
        recorded = "sizes of tensors depend on values" if has_symbolic_sizes(graph) else ""
        recorded = "the model keeps tensors from call to call" if seen.keeps else recorded
        if {name for name, _ in seen.first.mutated} - {name for name, _ in graph.mutated}:
            recorded = "the model puts new tensors in the place of its buffers"
    first = seen.first if graph is None or recorded else graph
    assert first is not None
    graphs = [first]
    for call, other, sizes_alone in seen.others:
        traced, _ = _traced(model, call) if sizes_alone and not recorded else (None, "")
        graphs.append(other if traced is None else traced)
    return graphs, seen, recorded


def _have_values(model: nn.Module, calls: Sequence[Call]) -> bool:
    there = (*model_tensors(model).values(), *(one for call in calls for one in call.tensors()))
    return not any(one.is_meta for one in there)


def _exported(
    model: nn.Module, calls: Sequence[Call], vouch: Sequence[str], graph: Graph, failure: Exception
) -> Survey:
    """What exported passes show of the paths of a model that cannot be recorded."""

    def watch(model: nn.Module, inputs: tuple[object, ...], keywords: Mapping[str, object]) -> Graph:
        return trace(model, inputs, keywords, known=RULES)

    reason = described(failure)
    try:
        _require_plain_operations(graph)
        seen = survey(model, calls, vouch, watch=watch)
    except Exception:  # what depends on Python's state may be exported once only
        return _example_alone(model, graph, vouch, f"only the path of the example is known ({reason})")
    return replace(seen, sentences=(f"only exported passes are known ({reason})", *seen.sentences))


def _example_alone(model: nn.Module, graph: Graph, vouch: Sequence[str], said: str) -> Survey:
    """What is known where there is one exported pass and no other: nothing of other paths."""
    missed = unreached(model, [graph])
    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    modules = frozenset(name for name, _ in named)
    open_ones = [name for name in missed if not is_vouched(name, vouch)]
    return Survey(
        unreached=missed,
        exposed=modules if open_ones else frozenset(),
        called=modules,
        sentences=(said,),
        doubtful=tuple(patterns(*open_ones)),
    )


def _require_plain_operations(graph: Graph) -> None:
    """Refuse to run what torch compiles when it is called: under a mode it would not, and never after."""
    for operation in graph.operations:
        if isinstance(operation.function, HigherOrderOperator):
            raise TraceError(f"torch's {operation.name} cannot be watched")


def _traced(model: nn.Module, call: Call, *, compare: bool = False) -> tuple[Graph | None, str]:
    """The graph by ``torch.export``, or None and the reason."""
    try:
        return trace(isolated(model), call.inputs, call.keywords, known=RULES, compare=compare), ""
    except NotExportable as failure:
        return None, str(failure)


@on_cpu
def _ranks(findings: Findings) -> Tensor:
    """Which unknowns stay free: scales of units (0, 1), then of a tensor's rows, columns, and buffers (4)."""
    rank = torch.ones(findings.system.count, dtype=torch.int64)
    for ids in findings.system.derived:
        rank[ids[ids > FIXED]] = 3
    for name, form in findings.tensors.items():
        for number, term in enumerate(form.terms):
            rank[term[term > FIXED]] = 4 if name in findings.buffers else min(number + 2, 3)
    for ids in findings.system.whole:
        rank[ids[ids > FIXED]] = 0
    return rank


def _aliases(model: nn.Module, findings: Findings) -> dict[str, str]:
    """All other names of the tensors that are listed: a trace may have only one of them."""
    there = model_tensors(model)
    listed = {id(there[name]): name for name in findings.tensors}
    names = {name: listed.get(id(tensor), name) for name, tensor in there.items()}
    return {name: known for name, known in names.items() if name != known}


def _of_tensors(findings: Findings) -> Tensor:
    """Which unknowns are of the model's own tensors."""
    mine = torch.zeros(findings.system.count, dtype=torch.bool)
    for form in findings.tensors.values():
        for term in form.terms:
            mine[term[term > FIXED]] = True
    return mine


@on_cpu
def _spec(findings: Findings, space: NullSpace, aliases: dict[str, str], recorded: str) -> SymmetrySpec:
    """Only the unknowns of the model's tensors, and the generators that move any of them."""
    of_parameter = _of_tensors(findings)
    mine = space.combination.chosen(of_parameter[space.combination.rows])
    used, _ = unique_values(mine.columns)
    generator = torch.full((len(space.free),), -1)
    generator[used] = torch.arange(len(used))
    unknowns = of_parameter.nonzero().flatten()
    scale = torch.full((len(of_parameter),), -1)
    scale[unknowns] = torch.arange(len(unknowns))
    tensors = {
        name: Moved(form.shape, tuple(scale[term.clamp(min=FIXED)] for term in form.terms))
        for name, form in findings.tensors.items()
    }
    return SymmetrySpec(
        tensors=tensors,
        aliases=aliases,
        names=_names(findings, space.free[used]),
        scales=len(unknowns),
        exponents=Sparse(scale[mine.rows], generator[mine.columns], mine.values),
        unknown={_located(*where): number for where, number in findings.unknown.items()},
        pinned={_spoken(name): number for name, number in findings.pinned.items()},
        approximate={
            f"{_located(name, place)} (eps {eps!r})": number
            for (name, place, eps), number in findings.approximate.items()
        },
        recorded=recorded,
    )


def _located(operation: str, place: str) -> str:
    return f"{_spoken(operation)} in {place or 'the model'}"


@functools.cache
def _spoken(operation: str) -> str:
    """Name of an operation as users know it.

    >>> _spoken("_native_batch_norm_legit_no_training"), _spoken("linear"), _spoken("_local_scalar_dense")
    ('batch_norm', 'linear', 'item')
    """
    if operation == "_local_scalar_dense":
        return "item"
    return re.sub(r"^_*(native_)?(\w+?)(_legit\w*)?$", r"\2", operation)


@on_cpu
def _names(findings: Findings, free: Tensor) -> tuple[str, ...]:
    """Where each generator's unit is: the operation or tensor that brought its unknown, its number there."""
    starts = torch.tensor([first for first, _ in findings.origins])
    which = torch.searchsorted(starts, free, right=True) - 1
    names: list[str] = []
    for unknown, place in zip(whole_numbers(free), whole_numbers(which), strict=True):
        start, (module, operation) = findings.origins[place]
        names.append(f"{module} {_spoken(operation)}".strip() + f" [{unknown - start}]")
    return tuple(names)
