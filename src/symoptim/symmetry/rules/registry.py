"""What each operation says about scales: a rule per operation, by its name in ATen.

A rule takes a :class:`Context` and the operation's own arguments, with a :class:`..form.Form` in place of
each tensor, writes equations into the system, and returns the form of the result (a tuple of them where the
operation returns several tensors; None for what is no tensor). If it cannot tell, it raises
:class:`CannotTell`: everything the operation touches is then pinned, which is always right.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from symoptim.symmetry.form import Form
from symoptim.symmetry.graph import Operation, Ref
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
    """Which of several results somebody takes."""

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

    def value(self, argument: Any) -> Tensor | None:
        """What an argument of the operation, as it stands in the graph, always is; None where it varies."""
        return self.known.get(argument.index) if isinstance(argument, Ref) else None

    def is_guard(self, constant: float, form: Form) -> bool:
        """Whether a constant that is added is zero, or so small that it is meant to guard a division.

        That is by a sum or a norm; next to elements that are zero no constant is small.
        """
        if constant == 0:
            return True
        guards = 0 < constant <= LARGEST_EPS and not form.has_zeros and self._is_reduced()
        if guards:
            self.approximations.append(float(constant))
        return guards

    def _is_reduced(self) -> bool:
        """Whether what the operation takes is a sum, a mean, a norm, or made of such alone."""
        return all(map(self._comes_from_reduction, self.operation.references()))

    def _comes_from_reduction(self, index: int) -> bool:
        producer = self.producers.get(index)
        if producer is None or producer.name in REDUCTIONS:
            return producer is not None
        return producer.name in PASSING and all(map(self._comes_from_reduction, producer.references()))


REDUCTIONS = frozenset("sum mean var std var_mean std_mean linalg_vector_norm norm amax".split())
PASSING = frozenset(
    "sqrt mul div getitem view reshape _unsafe_view expand unsqueeze squeeze permute transpose t clone alias "
    "_to_copy to detach contiguous abs pow square".split()
)
"""Operations behind which a sum of squares, say, is still one."""
LARGEST_EPS = 1e-4
"""Constants up to here count as the eps of a normalization somebody wrote out."""

RULES: dict[str, Rule] = {}
SEES_DEFERRED: set[str] = set()
"""Operations whose rules look at what is put off themselves; for all others it is merged before."""


def rule(*names: str, sees_deferred: bool = False) -> Callable[[AnyRule], AnyRule]:
    """Register a rule for operations of these names."""

    def register(function: AnyRule) -> AnyRule:
        for name in names:
            RULES[name] = function
        if sees_deferred:
            SEES_DEFERRED.update(names)
        return function

    return register
