"""Runs a model on inputs of other sizes, and looks for more sizes to try on the paths it takes there.

``n <= 10`` is compared where an example has 5, so 11 is tried. Only there it may show that ``n <= 100`` is
compared too, so 101 is tried, and so on.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import torch
from torch import nn

from symoptim.symmetry.sizes import Sizes, multiples, sizes_to_try
from symoptim.symmetry.variations import Axis, Call, resized

MOST_ROUNDS = 7
"""How often it is asked what is compared: loops that halve a size compare it once more at twice the size."""
MOST_BASES = 8
"""Sizes of one round at which it is asked what is compared."""
TOO_LARGE = "a size decides the path and is too large to be tried (give it in inputs=)"
NO_OTHER = "a size decides the path and no other size that was tried is taken (give one in inputs=)"


class SizeSearch:
    """Tries inputs of other sizes than an example.

    Args:
        model: the network.
        example: a call.
        attempt: calls the model with inputs of a size, and says whether it takes them.
        decide: told of modules that decide the path, and why what they decide is not known.
    """

    def __init__(  # noqa: D107 - the class says it
        self,
        model: nn.Module,
        example: Call,
        attempt: Callable[[Call, int], bool],
        decide: Callable[[str, str], None],
    ) -> None:
        self.model, self.example, self.attempt, self.decide = model, example, attempt, decide
        self.lost: set[str] = set()
        """Modules in which torch lost track of sizes."""
        self.left: set[str] = set()
        """Modules that compare sizes which were not tried, because one led to the next."""
        self.taken: dict[tuple[Axis, ...], tuple[Sizes, list[int]]] = {}
        """Groups of axes and sizes that the model takes."""
        self.known: set[str] = set()
        """What was compared so far."""
        self.too_large: set[tuple[Axis, ...]] = set()
        self.results = {_shapes(example): True}
        """Whether the model takes tensors of some shapes."""

    def search(self) -> None:
        """Try all sizes, and those that are compared only at these."""
        bases = self._first_round()
        for _ in range(1, MOST_ROUNDS):
            proposed = [(base, one) for base in bases[:MOST_BASES] for one in self._turning(base)]
            bases = [other for base, group in proposed for other in self._turned(base, group)]
        left = (group for base in bases[:MOST_BASES] for group in self._turning(base))
        self.left.update(place for group in left for place in group.decided_in)

    def all_at(self, choice: Callable[[Sequence[int]], int]) -> tuple[Call, int] | None:
        """All axes at a size that was taken alone, such as the largest, and the last of these sizes."""
        other: Call | None = self.example
        for group, sizes in self.taken.values():
            other = other and self._resized(other, group, choice(sizes))
        return (other, choice(list(self.taken.values())[-1][1])) if other and self.taken else None

    def _asked(self, base: Call) -> list[Sizes]:
        """What to try; what is not known is noted."""
        to_try = sizes_to_try(self.model, base, self.known)
        if to_try.looked_up is not None:
            self.decide(to_try.looked_up, "a size is looked up in a table, and may decide the path")
        if to_try.lost is not None:
            self.lost.add(to_try.lost)
        return to_try.groups

    def _turning(self, base: Call) -> list[Sizes]:
        return [group for group in self._asked(base) if group.turning]

    def _first_round(self) -> list[Call]:
        """All sizes that the example suggests; returns calls at which more may be compared."""
        turned: list[Call] = []
        unseen: list[tuple[Sizes, int]] = []
        for group in self._asked(self.example):
            used, taken = self._try_group(group)
            self._note(used, taken)
            ordinary = set(group.sizes) - set(group.turning)
            turned += self._at(self.example, used, sorted(set(taken) - ordinary) if group.turning else ())
            unseen += [(used, max(taken))] if group.again and taken else []
        return self._seen(unseen) + turned

    def _note(self, group: Sizes, taken: Sequence[int]) -> None:
        if taken:
            self.taken.setdefault(group.axes, (group, []))[1].extend(taken)

    def _seen(self, groups: Sequence[tuple[Sizes, int]]) -> list[Call]:
        """Calls with axes at sizes that torch sees compared, all at once if the model takes that."""
        together: Call | None = self.example
        for group, size in groups:
            together = together and self._resized(together, group, size)
        if not groups:
            return []
        if together is not None and (len(groups) == 1 or self._takes(together, groups[-1][1])):
            return [together]
        return [call for group, size in groups for call in self._at(self.example, group, [size])]

    def _turned(self, base: Call, group: Sizes) -> list[Call]:
        """Calls with sizes at which comparisons turn, if the model takes them."""
        for option in (group, *group.with_partners()):
            if taken := self._try_all(base, option, group.turning):
                self._note(option, taken)
                return self._at(base, option, taken)
        return []

    def _try_group(self, group: Sizes) -> tuple[Sizes, list[int]]:
        """Sizes of a group that the model takes, with the axes that have to vary with them."""
        number, axis = group.axes[0]
        sizes = (group.sizes, multiples(self.example.tensors()[number].shape[axis]))
        for some in sizes:
            if taken := self._try_all(self.example, group, some):
                return group, taken
        if len(group.axes) > 1:  # perhaps one of them is free
            alone = [group._replace(axes=(one,), turning=()) for one in group.axes]
            free = [one for one in alone if self._try_all(self.example, one, group.sizes[:2])]
            if free:
                return group, []
        if group.bound:
            return group, []
        for option, some in product(group.with_partners(), sizes):
            if taken := self._try_all(self.example, option, some):
                return option, taken
        if group.axes not in self.too_large:
            for place in group.decided_in:
                self.decide(place, NO_OTHER)
        return group, []

    def _try_all(self, base: Call, group: Sizes, sizes: Sequence[int]) -> list[int]:
        """Those sizes that the model takes; instead of some that turn a comparison, a multiple beyond."""
        number, axis = group.axes[0]
        taken = [size for size in sizes if self._try(base, group, size)]
        turning = () if group.axes in self.too_large else group.turning
        refused = [size for size in sizes if size in turning and size not in taken]
        beyond = [_multiple_beyond(base.tensors()[number].shape[axis], size) for size in refused]
        return taken + [size for size in dict.fromkeys(beyond) if self._try(base, group, size)]

    def _try(self, base: Call, group: Sizes, size: int) -> bool:
        if group.at(size) is None:
            return False
        other = self._resized(base, group, size)
        if other is not None:
            return self._takes(other, size)
        self.too_large.add(group.axes)
        for place in group.decided_in:
            self.decide(place, f"{TOO_LARGE}: {size}")
        return False

    def _takes(self, other: Call, size: int) -> bool:
        shapes = _shapes(other)
        if shapes not in self.results:
            self.results[shapes] = self.attempt(other, size)
        return self.results[shapes]

    def _at(self, base: Call, group: Sizes, sizes: Iterable[int]) -> list[Call]:
        found = (self._resized(base, group, size) for size in sizes)
        return [one for one in found if one is not None]

    def _resized(self, base: Call, group: Sizes, size: int) -> Call | None:
        sizes = group.at(size)
        return None if sizes is None else resized(base, sizes, self.example)


def _multiple_beyond(own: int, size: int) -> int:
    """A size beyond one that is refused, for models that take only multiples of something.

    >>> _multiple_beyond(16, 401), _multiple_beyond(16, 5)
    (416, 4)
    """
    return -(-size // own) * own if size > own else own // -(-own // size)


def _shapes(call: Call) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in call.tensors())
