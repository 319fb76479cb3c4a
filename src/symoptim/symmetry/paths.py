"""Which paths calls take through a model, and where the path depends on values, sizes, chance or state.

A trace shows one path. So the model is also run on inputs of other values and sizes, with other seeds, one
call after the other on one copy of it, and the operations of each pass are compared with those of the first:

    other operations         that pass is traced too: only what holds on every path is a symmetry
    a value that Python      ``if x.sum() > 0`` may lead anywhere, unless passes show both what is done if it
    asks for                 holds and what is done if not: the *frame* of the module that asks is exposed
    chance or state          of Python, such as a counter: the frame of the module that has it is exposed
    a parameter that no      what could meet it is not known: the frame of its module is exposed
    pass has reached

What is seen in an exposed frame (:mod:`.frames`), or in that of a module that may know of a decision made
there (:mod:`.frames`), is pinned, unless the user vouches for the module in which the decision is made.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from symoptim.errors import OptionError, TraceError, first_few
from symoptim.symmetry.attributes import Attributes, attributes_of, changing
from symoptim.symmetry.constants import changing_constants
from symoptim.symmetry.copies import isolated
from symoptim.symmetry.decisions import (
    ASKS,
    Decision,
    answers,
    follow_from_answers,
    ignores_values,
    undecided,
)
from symoptim.symmetry.environment import quietly, seeds_restored, set_seeds
from symoptim.symmetry.failures import Refusal, refusal_of
from symoptim.symmetry.frames import Calls, form_of
from symoptim.symmetry.graph import Graph, Ref, has_symbolic_result
from symoptim.symmetry.limits import LARGEST_PASS
from symoptim.symmetry.other_answers import informed_by_other_answers
from symoptim.symmetry.record import Series, record
from symoptim.symmetry.recorder import made_in
from symoptim.symmetry.size_search import SizeSearch
from symoptim.symmetry.steps import KeptPasses, Step, plain, steps
from symoptim.symmetry.tensors import model_tensors
from symoptim.symmetry.variations import Call, other_values


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
    called: frozenset[str] = frozenset()
    """Modules that were called."""
    keeps: bool = False
    """Whether the model keeps what it makes of its tensors from call to call."""
    changing: frozenset[int] = frozenset()
    """Numbers for values of constants that are others in other passes."""
    sentences: tuple[str, ...] = ()
    """What decides the path, in words."""
    doubts: tuple[str, ...] = ()
    """Those about paths that were not seen."""
    doubtful: tuple[str, ...] = ()
    """Patterns to vouch for: of modules that decide, and of parameters that were not reached."""


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
        self.fresh = model
        self.model, self.vouch, self.watch = isolated(model), tuple(vouch), watch
        self.restore = self.model is model
        self.exported = exported is not None
        operations = () if exported is None else exported.operations
        self.sized = {one.place for one in operations if has_symbolic_result(one)}
        """Modules in which sizes depend on values, whatever these are."""
        self.asked = Counter(one.place for one in operations if one.name in ASKS)
        """How often modules ask for values, whatever these are."""
        self.calls = Calls(self.model)
        self.decisions: list[Decision] = []
        self.lost: set[str] = set()
        """Modules in which torch lost track of sizes."""
        self.left: set[str] = set()
        """Modules that compare sizes which were not tried."""
        self.large: set[str] = set()
        """Modules with attributes that are too large to be compared."""
        self.passes: list[Graph] = []
        self.seed = 0
        self.series = Series()
        self.room = LARGEST_PASS
        """Bytes that results of a trial may take."""

    def survey(self, calls: Sequence[Call]) -> Survey:
        """All passes, one after the other."""
        first = self._pass(calls[0])
        self.room = max(LARGEST_PASS, 2 * first.memory)
        found = Survey(first=first)
        kept = KeptPasses(first)
        found.others = kept.others
        for call in calls[1:]:
            try:
                kept.keep_size(call, self._pass(call), None)
            except TraceError as failure:
                raise OptionError(f"an example of inputs=[...] cannot be used: {failure}") from failure
        for call in self._try_values(calls[0], kept):
            self._try_sizes(call, kept)
        self.decisions += undecided([self._answers(graph) for graph in self.passes])
        for place in {place for graph in self.passes for place in graph.raised}:
            self._decide(place, "an exception that the model catches may decide the path")
        self._close(found, calls[0], kept)
        self._note_kept(found)
        found.changing = changing_constants(self.passes)
        if found.changing:
            found.sentences += (
                "tensors that are no inputs differ between calls: their values count as unknown",
            )
        if found.exposed:
            self._add_seen_values(found, calls[0])
        return found

    def _note_kept(self, found: Survey) -> None:
        """What later calls use of the first is as good as returned."""
        assert found.first is not None
        used = tuple(
            Ref(number) for number, one in made_in(found.first).items() if one in self.series.earlier.used
        )
        found.keeps = bool(self.series.earlier.used)
        found.first = replace(found.first, outputs=(*found.first.outputs, *used))

    def _add_seen_values(self, found: Survey, first: Call) -> None:
        """Passes that show what goes in and out of modules."""
        try:
            model = isolated(self.fresh)  # the other one may keep what the turning into values has left
            for call in (first, *(call for call, _, _ in found.others)):
                graph = record(model, *_copied(call), self.series, functional=False, restore=self.restore)
                found.others.append((call, graph, False))
        except Exception:  # not every model can be watched so
            found.exposed = frozenset(self.calls.places.values())

    def _pass(self, call: Call, *, room: float | None = None) -> Graph:
        """One pass, with seeds of its own."""
        self.seed += 1
        set_seeds(self.seed)
        mine = _copied(call)
        with self.calls.noted(form_of(mine.tensors()).sizes):
            if self.watch is not None:
                graph = self.watch(self.model, *mine)
            else:
                graph = record(self.model, *mine, self.series, restore=self.restore, room=room)
        self.passes.append(graph)
        return graph

    def _tried(self, call: Call) -> Graph | Refusal:
        """The same, or why the model does not take such inputs."""
        try:
            return self._pass(call, room=self.room)
        except Exception as error:  # whatever a model raises that does not take such inputs
            return refusal_of(error)

    def _try_values(self, call: Call, kept: KeptPasses) -> list[Call]:
        """Other values, and the same ones again; an exported pass does not depend on either.

        Returns a call for each sequence of answers that Python got: each may compare other sizes.
        """
        first = kept.first
        before = attributes_of(self.model)
        others = [(other, self._tried(other)) for other in other_values(call)] if self.watch is None else []
        again = [(call, self._tried(call))]
        with torch.set_grad_enabled(not torch.is_grad_enabled()):
            again.append((call, self._tried(call)))
        self._note_changes(before)
        for place in self.calls.drawing:
            self._decide(place, "random numbers of Python or NumPy are drawn, and may decide the path")
        passes = [graph for _, graph in (*others, *again) if isinstance(graph, Graph)]
        by_answers = {tuple(self._answers(first)): call}
        for other, graph in (*others, *again):
            if isinstance(graph, Graph):
                kept.keep(other, graph)
                by_answers.setdefault(tuple(self._answers(graph)), other)
        if follow_from_answers([(self._answers(one), self._but_for_sizes(one)) for one in (first, *passes)]):
            return list(by_answers.values())
        repeats = [self._but_for_sizes(graph) for _, graph in again if isinstance(graph, Graph)]
        values = all(one == self._but_for_sizes(first) for one in repeats)
        reason = "values of the inputs" if values else "chance, an earlier call or the mode of gradients"
        for graph in passes:
            for place in _decided_in(steps(first), steps(graph)):
                self._decide(place, f"{reason} decide the path", unseen=False)
        return list(by_answers.values())

    def _note_changes(self, before: Attributes) -> None:
        after = attributes_of(self.model)
        self.large |= before.too_large | after.too_large
        for place in changing(before, after):
            self._decide(place, "attributes change from call to call, and may decide the path of later ones")

    def _decide(self, place: str, reason: str, *, unseen: bool = True) -> None:
        self.decisions.append(Decision(place, reason, unseen))

    def _answers(self, graph: Graph) -> Any:
        return answers(graph, self.asked, self.exported)

    def _but_for_sizes(self, graph: Graph) -> list[Step]:
        return [step._replace(numbers="") if step.place in self.sized else step for step in steps(graph)]

    def _try_sizes(self, call: Call, kept: KeptPasses) -> None:
        """Other sizes, and all axes at once at the smallest and the largest, with other values too."""

        def attempt(other: Call, size: int) -> Refusal | None:
            return self._try_at_size(other, kept, size)

        asks = bool(self.decisions) or not all(map(ignores_values, self.passes))
        search = SizeSearch(self.model, call, attempt, self._decide, values=asks)
        search.search()
        self.lost |= search.lost
        self.left |= search.left
        for choice in (min, max):
            found = search.all_at(choice)
            if found is None or self.watch is not None:
                continue
            other, size = found
            refused = attempt(other, size)
            before = attributes_of(self.model)  # of a model that may keep what it makes for a size
            others = other_values(other)
            if refused is None and not self.decisions and all(map(ignores_values, self.passes)):
                others = others[:1]  # only whether a second pass of this size does something else
            for one in others:
                attempt(one, size)
            self._note_changes(before)

    def _try_at_size(self, call: Call, kept: KeptPasses, size: int) -> Refusal | None:
        """Why the model does not take it, if so."""
        graph = self._tried(call)
        if isinstance(graph, Refusal):
            return graph
        kept.keep_size(call, graph, size)
        return None

    def _close(self, found: Survey, first: Call, kept: KeptPasses) -> None:
        """Complete the result: what the user vouches for decides nothing."""
        found.unreached = unreached(self.model, self.passes)
        found.doubts = tuple(self._doubts())
        found.sentences = (*self._sizes(kept), *found.doubts)
        if not self.decisions and not all(sizes_alone for _, _, sizes_alone in found.others):
            found.sentences += ("values decide the path: what is found holds on every path they lead to",)
        open_ones = [one for one in self.decisions if not is_vouched(one.place, self.vouch)]
        missed = [name for name in found.unreached if not is_vouched(name, self.vouch)]
        found.doubtful = tuple(patterns(*(one.place for one in open_ones), *missed))
        open_ones += [Decision(name.rpartition(".")[0], "", unseen=False) for name in missed]
        found.exposed = self.calls.knowing(open_ones, *self._informed(open_ones, first))
        found.called = frozenset(self.calls.called)

    def _informed(self, decisions: Sequence[Decision], first: Call) -> tuple[frozenset[str], ...]:
        """Modules that would get something else if a decision were another one; those asking for sizes."""
        places = {one.place for one in decisions if one.reason}
        if self.watch is not None or not places:
            return ()
        return informed_by_other_answers(
            isolated(self.fresh), first, places, self.series, restore=self.restore
        )

    def _sizes(self, kept: KeptPasses) -> Iterable[str]:
        if kept.sizes:
            tried = ", ".join(map(str, dict.fromkeys(kept.sizes.values())))
            yield f"sizes of the inputs decide the path: what is found holds at size {tried} too"

    def _doubts(self) -> Iterable[str]:
        """What may decide the path otherwise than was seen, in words."""
        if self.lost:
            yield f"torch could not follow sizes beyond {_words(self.lost)}: other sizes may take other paths"
        if self.left:
            yield f"more sizes are compared than could be tried: in {_words(self.left)}"
        if self.large:
            where = _words(self.large)
            yield f"attributes are too large to compare, and may change from call to call: in {where}"
        reasons: dict[str, set[str]] = {}
        for one in self.decisions:
            reasons.setdefault(one.reason, set()).add(one.place)
        for reason, places in reasons.items():
            word = "vouched for" if all(is_vouched(place, self.vouch) for place in places) else "pinned"
            yield f"{reason}: in {_words(places)} ({word})"


def _words(places: Iterable[str]) -> str:
    return first_few(place or "the model itself" for place in sorted(places))


def unreached(model: nn.Module, passes: Iterable[Graph]) -> tuple[str, ...]:
    """Names of parameters that no pass has used."""
    names = model_tensors(model)
    used = {id(names[name]) for graph in passes for name in graph.used_names() if name in names}
    return tuple(name for name, tensor in model.named_parameters() if id(tensor) not in used)


def is_vouched(name: str, vouch: Sequence[str]) -> bool:
    """Whether a pattern is for a module or parameter, or for a module around it.

    >>> is_vouched("layers.0.expert", ["layers.*"]), is_vouched("layers.0", ["head"])
    (True, False)
    """
    around = [name.rsplit(".", cut)[0] for cut in range(name.count(".") + 1)]
    return any(fnmatchcase(part, pattern) for part in around for pattern in vouch)


def patterns(*names: str) -> list[str]:
    """Names with a star for numbers, each once.

    >>> patterns("layers.0.experts", "layers.1.experts", "")
    ['layers.*.experts', '']
    """
    return list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names))


def _copied(call: Call) -> Call:
    """The same call with tensors of its own: a model may write into its inputs."""
    return call.changed(lambda _, tensor: tensor.detach().clone())


def _decided_in(mine: Sequence[Step], theirs: Sequence[Step]) -> set[str]:
    """Modules that decide on what is done in one pass and not in the other."""
    one, other = Counter(plain(mine)), Counter(plain(theirs))
    if one == other:  # the same in another order, or on other values
        return next(({a.place, b.place} for a, b in zip(mine, theirs, strict=True) if a != b), set[str]())
    return {_caller(step.place, one, other) for step in one.keys() ^ other.keys()}


def _caller(place: str, *passes: Counter[Step]) -> str:
    """The module that decides on an operation of one pass: the one around what is not called in the other."""
    around = place
    while around:
        if all(any(f"{step.place}.".startswith(f"{around}.") for step in one) for one in passes):
            return around
        around = around.rpartition(".")[0]
    return around
