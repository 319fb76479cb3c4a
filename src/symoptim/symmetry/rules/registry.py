"""What each operation says about scales: a rule per operation, by its name in ATen.

A rule takes a :class:`Context` and the operation's own arguments, with a :class:`..form.Form` in place of
each tensor, writes equations into the system, and returns the form of the result (a tuple of them where the
operation returns several tensors; None for what is no tensor). If it cannot tell, it raises
:class:`CannotTell`: everything the operation touches is then pinned, which is always right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from symoptim.symmetry.form import Form
from symoptim.symmetry.graph import Graph, Operation, Ref
from symoptim.symmetry.system import System

Result = Form | tuple[Form | None, ...] | None
Rule = Callable[..., Result]
AnyRule = TypeVar("AnyRule", bound=Rule)


class CannotTell(Exception):  # noqa: N818 - it is no error, and nobody outside sees it
    """A rule does not cover this use of its operation."""


@dataclass(slots=True)
class Context:
    """What a rule works with: the equations so far, and the operation it is about."""

    system: System
    operation: Operation
    producers: Mapping[int, Operation] = field(default_factory=dict[int, Operation])
    """All operations, by number of their results."""
    approximations: list[float] = field(default_factory=list[float])
    """Constants that break exactness, such as the eps of a normalization."""
    known: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])
    """Values that never change, by number."""
    read: frozenset[int] = frozenset()
    """Which of several results are taken."""
    users: Mapping[int, Sequence[Operation | None]] = field(
        default_factory=dict[int, Sequence[Operation | None]]
    )
    """Operations that take a value, by its number; None for what comes out or is written back."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result, or of the first of several."""
        result = self.operation.result
        first = result if isinstance(result, Tensor) else result[0]
        return tuple(first.shape)

    @property
    def reads_statistics(self) -> bool:
        """Whether anything but the first result matters."""
        return bool(self.read - {0})

    def value(self, argument: object) -> Tensor | None:
        """What an argument of the operation, as it stands in the graph, always is; None where it varies."""
        return self.known.get(argument.index) if isinstance(argument, Ref) else None

    def is_guard(self, constant: float, form: Form, *, bound: bool = False) -> bool:
        """Whether a constant that is added, or a ``bound``, is zero or guards a division.

        It is small, next to a sum or a norm, and nothing but a divisor is made of the result. Next to
        elements that are zero no constant is small, and a bound replaces whatever is negative.
        """
        if constant == 0:
            return True
        guards = (
            0 < constant <= LARGEST_EPS
            and not form.has_zeros
            and self._is_reduced()
            and (not bound or self._is_positive())
            and self._is_divisor(self.operation.index)
        )
        if guards:
            self.approximations.append(float(constant))
        return guards

    def _is_divisor(self, index: int) -> bool:
        """Whether others are divided by a value and what is made of it, and it serves for nothing else."""
        waiting, seen = [index], {index}
        while waiting:
            value = waiting.pop()
            for user in self.users.get(value, ()):
                if user is None:
                    return False
                behind = self._divides(user, value)
                if behind is None:
                    return False
                waiting += behind - seen
                seen |= behind
        return True

    def _divides(self, user: Operation, index: int) -> set[int] | None:
        """Values that have to be divisors, too, for an operation to divide by one; None if it does not."""
        mine = [isinstance(one, Ref) and one.index == index for one in user.arguments]
        behind = {user.index}
        if user.name in INVERSES or user.name in UNREAD:
            return set()
        if user.name == "pow" and mine == [True, False] and isinstance(user.arguments[1], int | float):
            return set() if user.arguments[1] < 0 else behind
        if user.name in ("div", "true_divide") and not user.keywords.get("rounding_mode"):
            above = behind if mine == [True, False] else None
            return set() if mine == [False, True] else above
        return behind if user.name in BEHIND_GUARDS else None

    def _is_reduced(self) -> bool:
        """Whether what the operation takes is a sum, a mean, a norm, or made of such alone."""
        waiting = self.operation.references()
        seen = set(waiting)
        while waiting:
            producer = self.producers.get(waiting.pop())
            if producer is None:
                return False
            if producer.name not in REDUCTIONS:
                behind = set(producer.references()) - seen
                if producer.name not in PASSING:
                    return False
                waiting += behind
                seen |= behind
        return True

    def _is_positive(self) -> bool:
        """Whether nothing is negative that the operation takes, by the operations that make it."""
        waiting = self.operation.references()
        seen = set(waiting)
        while waiting:
            producer = self.producers.get(waiting.pop())
            if producer is None:
                return False
            if not self._makes_positive(producer):
                if producer.name not in KEEPING_SIGNS or _has_negative(producer):
                    return False
                behind = set(producer.references()) - seen
                waiting += behind
                seen |= behind
        return True

    def _makes_positive(self, producer: Operation) -> bool:
        """Whether no result of an operation is negative, whatever it takes."""
        first, *others = producer.arguments
        if producer.name == "getitem":  # of the variance and the mean, say
            whole = self.producers.get(first.index)
            return whole is not None and whole.name in ("var_mean", "std_mean") and others[0] == 0
        if producer.name == "pow":
            return not isinstance(others[0], Ref) and others[0] % 2 == 0
        return producer.name in POSITIVE or (producer.name == "mul" and first == others[0])


def _has_negative(operation: Operation) -> bool:
    """Whether it multiplies by, or adds, a negative number."""
    numbers = [one for one in operation.arguments if isinstance(one, int | float)]
    return operation.name in ("mul", "div", "add") and any(number < 0 for number in numbers)


REDUCTIONS = frozenset("sum mean var std var_mean std_mean linalg_vector_norm norm amax".split())
PASSING = frozenset(
    "sqrt mul div getitem view reshape _unsafe_view expand unsqueeze squeeze permute transpose t clone alias "
    "_to_copy to detach contiguous abs pow square".split()
)
"""Operations behind which a sum of squares, say, is still one."""
POSITIVE = frozenset(
    "abs square relu sqrt exp softmax _softmax sigmoid var std linalg_vector_norm norm".split()
)
"""Operations of which no result is negative."""
KEEPING_SIGNS = PASSING | {"sum", "mean", "amax", "add"}
"""Operations of which no result is negative if nothing is that they take."""
INVERSES = frozenset(("rsqrt", "reciprocal"))
UNREAD = frozenset("ones_like new_ones empty_like new_empty sym_size _assert_tensor_metadata".split())
"""Operations that read no values."""
BEHIND_GUARDS = frozenset((PASSING - {"getitem", "pow", "div"}) | {"clamp", "clamp_min", "clamp_max"})
"""Operations behind which a divisor is still one."""
LARGEST_EPS = 1e-4
"""Constants up to here count as the eps of a normalization that is written out."""

RULES: dict[str, Rule] = {}
SEES_DEFERRED: set[str] = set()
"""Operations whose rules look at what is put off themselves; for all others it is merged before."""


def users_of(graph: Graph) -> dict[int, list[Operation | None]]:
    """Operations that take a value, by its number; None stands for the caller, or the next call."""
    users: dict[int, list[Operation | None]] = {}
    for operation in graph.operations:
        for index in dict.fromkeys(operation.references()):
            users.setdefault(index, []).append(operation)
    for value in (*graph.outputs, *(after for _, after in graph.mutated)):
        users.setdefault(value.index, []).append(None)
    return users


def rule(*names: str, sees_deferred: bool = False) -> Callable[[AnyRule], AnyRule]:
    """Register a rule for operations of these names."""

    def register(function: AnyRule) -> AnyRule:
        for name in names:
            RULES[name] = function
        if sees_deferred:
            SEES_DEFERRED.update(names)
        return function

    return register
