"""Which passes are kept: all that hold for other values, and a few that differ in sizes."""

from symoptim.symmetry.graph import Graph
from symoptim.symmetry.steps import Kinds, Step, kinds, loses_cuts, plain, steps, takes_other_parts
from symoptim.symmetry.variations import Call

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
