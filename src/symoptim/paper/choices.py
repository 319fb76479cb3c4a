"""What can be asked for by name, and the checks that protocols share; needs no torch."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar

from symoptim.errors import OptionError

ExperimentName = Literal["table2", "trajectories", "segnet", "invariance", "architectures"]
ProfileName = Literal["quick", "paper"]
DataName = Literal["mnist", "fashion-mnist", "digits"]
DataChoice = Literal["auto", "mnist", "fashion-mnist", "digits"]
"""Auto is MNIST where it can be had; if not, digits do for the quick profile."""
SceneDataName = Literal["camvid", "roads"]
SceneDataChoice = Literal["auto", "camvid", "roads"]
"""Auto is CamVid where it is found; if not, drawn road scenes do for the quick profile."""
NetworkName = Literal["segnet", "segnet-basic"]
SceneScheduleName = Literal["cosine", "exponential", "bold"]
Weighting = Literal["none", "median", "root"]
Architecture = Literal["arch1", "arch2"]
ScheduleName = Literal["exponential", "bold"]
Classifier = Literal["rows", "columns"]
Loss = Literal["sum", "mean"]
"""What a rate multiplies: the gradient of the loss summed over a batch, or of its mean."""

Fields = dict[str, Any]
"""Fields of a protocol by name."""
T = TypeVar("T")


def configured(protocol: type[T], profile: Fields, changes: Fields) -> T:
    """A protocol from its profile and changes; those that are None change nothing."""
    known = [field.name for field in fields(protocol)]  # pyright: ignore[reportArgumentType] - a dataclass
    for name in changes:
        if name not in known:
            raise OptionError(f"unknown option '{name}'; choose from {', '.join(known)}")
    config = {name: value for name, value in changes.items() if value is not None}
    return protocol(**{**profile, **config})


def require_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that there is not.

    >>> require_choice("profile", "huge", ["quick", "paper"])
    Traceback (most recent call last):
    symoptim.errors.OptionError: unknown profile 'huge'; choose from quick, paper
    """
    known = list(choices)
    if value not in known:
        raise OptionError(f"unknown {option} '{value}'; choose from {', '.join(known)}")


def require_known(names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names of updates that are not registered.

    >>> require_known(["sm", "lion"], ["sm", "un"])
    Traceback (most recent call last):
    symoptim.errors.OptionError: unknown update 'lion'; choose from sm, un
    """
    for name in names:
        require_choice("update", name, known)


def require_different(updates: Sequence[str]) -> None:
    """Refuse a list of updates that is empty or names one twice."""
    if len(set(updates)) != len(updates) or not updates:
        raise OptionError(f"updates must be different and at least one, got {', '.join(updates) or 'none'}")


def require_positive(record: object, *names: str) -> None:
    """Refuse fields below 1, and a seed below 0."""
    for name in names:
        if getattr(record, name) < 1:
            raise OptionError(f"{name} must be at least 1, got {getattr(record, name)}")
    if getattr(record, "seed", 0) < 0:
        raise OptionError(f"seed must be 0 or more, got {getattr(record, 'seed', 0)}")
