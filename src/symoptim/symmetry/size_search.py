"""Runs a model on inputs of other sizes, and looks for more sizes to try on the paths it takes there.

``n <= 10`` is compared where an example has 5, so 11 is tried. Only there it may show that ``n <= 100`` is
compared too, so 101 is tried, and so on.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product

import torch
from torch import nn

from symoptim.symmetry.failures import Refusal
from symoptim.symmetry.sizes import Sizes, multiples, sizes_to_try
from symoptim.symmetry.variations import Axis, Call, resized

MOST_ROUNDS = 7
"""How often it is asked what is compared: loops that halve a size compare it once more at twice the size."""
MOST_BASES = 8
"""Sizes of one round at which it is asked what is compared."""
MOST_COMPARISONS = 200
"""When so many were seen it is not asked again: hundreds in one pass, of windows, say, take half a minute."""
TOO_LARGE = "a size decides the path and is too large to be tried (give it in inputs=)"
NO_OTHER = "a size decides the path and no other size that was tried is taken (give one in inputs=)"
NOT_TAKEN = "a size decides the path and those that were tried beyond it are not taken (give one in inputs=)"
BLOCKS = (8, 16, 64)
"""Multiples of these are tried where a size is refused, beside those of the example's size."""


class SizeSearch:
    """Tries inputs of other sizes than an example.

    Args:
        model: the network.
        example: a call.
        attempt: calls the model with inputs of a size, and says why it does not take them, if so.
        decide: called with modules that decide the path, and why what they decide is not known.
        values: whether the model may ask for values.
    """

    def __init__(  # noqa: D107 - the class says it
        self,
        model: nn.Module,
        example: Call,
        attempt: Callable[[Call, int], Refusal | None],
        decide: Callable[[str, str], None],
        *,
        values: bool = True,
    ) -> None:
        self.values = values
        self.model, self.example, self.attempt, self.decide = model, example, attempt, decide
        self.lost: set[str] = set()
        """Modules in which torch lost track of sizes."""
        self.left: set[str] = set()
        """Modules that may compare other sizes than were tried, because one led to the next."""
        self.taken: dict[tuple[Axis, ...], tuple[Sizes, list[int]]] = {}
        """Groups of axes and sizes that the model takes."""
        self.known: set[str] = set()
        """What was compared so far."""
        self.compared = 0
        self.comparing: set[str] = set()
        """Modules that compare sizes."""
        self.too_large: set[tuple[Axis, ...]] = set()
        self.results: dict[tuple[torch.Size, ...], Refusal | None] = {_shapes(example): None}
        """Why the model does not take tensors of some shapes, or None if it does."""

    def search(self) -> None:
        """Try all sizes, and those that are compared only at these."""
        bases = self._first_round()
        for _ in range(1, MOST_ROUNDS):
            proposed = [(base, one) for base in bases[:MOST_BASES] for one in self._with_thresholds(base)]
            bases = [other for base, group in proposed for other in self._at_thresholds(base, group)]
        left = (group for base in bases[:MOST_BASES] for group in self._with_thresholds(base))
        self.left.update(place for group in left for place in group.decided_in)

    def all_at(self, choice: Callable[[Sequence[int]], int]) -> tuple[Call, int] | None:
        """All axes at a size that was taken alone, such as the largest, and the last of these sizes."""
        other: Call | None = self.example
        for group, sizes in self.taken.values():
            other = other and self._resized(other, group, choice(sizes))
        return (other, choice(list(self.taken.values())[-1][1])) if other and self.taken else None

    def _asked(self, base: Call) -> list[Sizes]:
        """What to try; what is not known is noted."""
        if self.compared > MOST_COMPARISONS:
            self.left |= self.comparing
            return []
        to_try = sizes_to_try(self.model, base, self.known, values=self.values)
        self.compared += to_try.compared
        self.comparing.update(place for group in to_try.groups for place in group.decided_in)
        if to_try.looked_up is not None:
            self.decide(to_try.looked_up, "a size is looked up in a table, and may decide the path")
        if to_try.lost is not None:
            self.lost.add(to_try.lost)
        return to_try.groups

    def _with_thresholds(self, base: Call) -> list[Sizes]:
        return [group for group in self._asked(base) if group.thresholds]

    def _first_round(self) -> list[Call]:
        """All sizes that the example suggests; returns calls at which more may be compared."""
        calls: list[Call] = []
        unseen: list[tuple[Sizes, int]] = []
        for group in self._asked(self.example):
            used, taken = self._try_group(group)
            self._note(used, taken)
            ordinary = set(group.sizes) - set(group.thresholds)
            calls += self._at(self.example, used, sorted(set(taken) - ordinary) if group.thresholds else ())
            unseen += [(used, max(taken))] if group.again and taken else []
        return self._seen(unseen) + calls

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
        if together is not None and (len(groups) == 1 or self._result(together, groups[-1][1]) is None):
            return [together]
        return [call for group, size in groups for call in self._at(self.example, group, [size])]

    def _at_thresholds(self, base: Call, group: Sizes) -> list[Call]:
        """Calls with sizes at which comparisons have another outcome, if the model takes them."""
        for option in (group, *group.with_partners()):
            if taken := self._try_all(base, option, group.thresholds):
                self._note(option, taken)
                self._decide_missed(base, option, taken)
                return self._at(base, option, taken)
        return []

    def _try_group(self, group: Sizes) -> tuple[Sizes, list[int]]:
        """Sizes of a group that the model takes, with the axes that have to vary with them."""
        number, axis = group.axes[0]
        sizes = (group.sizes, multiples(self.example.tensors()[number].shape[axis]))
        alone = [group._replace(axes=(one,), thresholds=()) for one in group.axes]
        for some in sizes:
            if taken := self._try_all(self.example, group, some):
                self._decide_missed(self.example, group, taken)
                for one in alone if group.equated else ():  # they may take another path where they differ
                    self._try_all(self.example, one, [*group.sizes[:2], 1])
                return group, taken
        if len(group.axes) > 1:  # perhaps one of them is free
            free = [one for one in alone if self._try_all(self.example, one, group.sizes[:2])]
            if free:
                return group, []
        if group.bound:
            return group, []
        for option, some in product(group.with_partners(), sizes):
            if taken := self._try_all(self.example, option, some):
                self._decide_missed(self.example, option, taken)
                return option, taken
        if group.axes not in self.too_large:
            for place in group.decided_in:
                self.decide(place, NO_OTHER)
        return group, []

    def _try_all(self, base: Call, group: Sizes, sizes: Sequence[int]) -> list[int]:
        """Those sizes that the model takes; instead of thresholds that it refuses, sizes beyond."""
        taken = [size for size in sizes if self._outcome(base, group, size) is None]
        if group.axes in self.too_large:
            return taken
        number, axis = group.axes[0]
        own = base.tensors()[number].shape[axis]
        for size in (one for one in group.thresholds if one in sizes and one not in taken):
            missed = self._missed(group, size, taken)
            others = [n for n in _beyond(own, size) if not missed or missed & self._different_at(group, n)]
            taken += [n for n in others if n not in taken and self._outcome(base, group, n) is None][:1]
        return taken

    def _different_at(self, group: Sizes, size: int) -> frozenset[int]:
        return group.asked.different_at(size) if group.asked else frozenset()

    def _missed(self, group: Sizes, size: int, taken: Sequence[int]) -> frozenset[int]:
        """Comparisons by Python code with a threshold at a size, and one outcome at all that are taken."""
        if group.asked is None:
            return frozenset()
        return group.asked.with_threshold_at(size).difference(
            *(group.asked.different_at(one) for one in taken)
        )

    def _decide_missed(self, base: Call, group: Sizes, taken: Sequence[int]) -> None:
        """Note sizes that the model does not take, though it does not refuse them itself either."""
        for size in group.thresholds:
            failed = self._outcome(base, group, size) is Refusal.FAILED
            if failed and self._missed(group, size, taken):
                for place in group.decided_in:
                    self.decide(place, f"{NOT_TAKEN}: {size}")

    def _outcome(self, base: Call, group: Sizes, size: int) -> Refusal | None:
        """Why the model does not take a size, or None if it does."""
        if group.at(size) is None:
            return Refusal.NONE_SUCH
        other = self._resized(base, group, size)
        found = Refusal.TOO_LARGE if other is None else self._result(other, size)
        if found is Refusal.TOO_LARGE and size in group.thresholds:
            self.too_large.add(group.axes)
            for place in group.decided_in:
                self.decide(place, f"{TOO_LARGE}: {size}")
        return found

    def _result(self, other: Call, size: int) -> Refusal | None:
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


def _beyond(own: int, size: int) -> list[int]:
    """Sizes beyond one that is refused, for models that take only multiples of something.

    >>> _beyond(5, 11), _beyond(16, 5)
    ([15, 16, 64], [4])
    """
    if size < own:
        return [own // -(-own // size)]
    return list(dict.fromkeys(-(-size // block) * block for block in (own, *BLOCKS)))


def _shapes(call: Call) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in call.tensors())
