"""Operations of which nothing comes out, such as the layers of an expert that got no rows.

They write no equations, though another input may give them rows. Where no other pass shows the same operation
with the same weights at work, these are pinned.
"""

from collections.abc import Sequence

from torch import Tensor

from symoptim.symmetry.form import Form
from symoptim.symmetry.graph import Graph, Operation, has_plain_sizes
from symoptim.symmetry.rules.moving import MOVES
from symoptim.symmetry.system import System

Key = tuple[str, str, bytes]


class Empty:
    """What was seen of operations that are empty in some pass."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        """Find out which operations that are."""
        everywhere = (operation for graph in graphs for operation in graph.operations)
        self.places = {(one.place, one.name) for one in everywhere if _is_empty(one)}
        self.seen: set[Key] = set()
        self.missed: dict[Key, Form] = {}

    def note(self, operation: Operation, forms: Sequence[Form]) -> None:
        """Note an operation and the forms it takes."""
        if (operation.place, operation.name) not in self.places:
            return
        for form in forms:
            if form.terms and 0 not in form.shape:
                ids = b"".join(term.contiguous().numpy().tobytes() for term in form.terms)
                key = (operation.place, operation.name, ids)
                if _is_empty(operation):
                    self.missed[key] = form
                else:
                    self.seen.add(key)

    def pin(self, system: System) -> None:
        """Pin what such operations take and no pass has shown the work of."""
        for key, form in self.missed.items():
            if key not in self.seen:
                system.pin(form)


def _is_empty(operation: Operation) -> bool:
    """Whether an operation that does more than move entries has a result without any."""
    result = operation.result
    if operation.name in MOVES or not isinstance(result, Tensor) or not has_plain_sizes(result):
        return False
    return result.is_floating_point() and not result.numel()
