"""Every exception and warning this package raises on purpose.

Each also is the builtin kind PyTorch users already catch (``ValueError``, ``RuntimeError``), so
``except ValueError`` around an optimizer's constructor works as it does with ``torch.optim``.
"""

import inspect
import warnings
from collections.abc import Iterable, Iterator
from types import FrameType


class SymoptimError(Exception):
    """Base of every error of this package."""


class OptionError(SymoptimError, ValueError):
    """An option has a value its rule forbids."""


class ZeroFilterError(SymoptimError, ValueError):
    """A filter is zero, so it has no direction to keep."""


class GradientError(SymoptimError, RuntimeError):
    """A gradient is of a kind the updates are not defined for."""


class LayoutError(SymoptimError, RuntimeError):
    """A distributed tensor is laid out in a way the updates cannot handle."""


class CheckpointError(SymoptimError, ValueError):
    """A saved state belongs to other parameters or another geometry."""


class DataError(SymoptimError, RuntimeError):
    """A data file is missing, damaged, or not what its name says."""


class RecordsError(SymoptimError, RuntimeError):
    """A file of records cannot be opened, belongs to something else, or cannot be written."""


class TraceError(SymoptimError, RuntimeError):
    """Part of a forward pass cannot be watched, so that nothing can be said about the model."""


class SymmetryError(SymoptimError, RuntimeError):
    """What is taken for a symmetry of a model is none of this one."""


class SymoptimWarning(UserWarning):
    """Base of every warning of this package."""


class ZeroFilterWarning(SymoptimWarning):
    """A filter is zero; the scaled metric leaves it where it is."""


class UnmeasuredWarning(SymoptimWarning):
    """The full metric does not know the scale of some units; training depends on theirs alone."""


class PathWarning(SymoptimWarning):
    """Values, lengths or chance decide the path through a model, and other paths were not seen."""


class EpsWarning(SymoptimWarning):
    """A rescaling changes outputs, because the eps of a normalization is felt."""


class ModeWarning(SymoptimWarning):
    """Symmetries were found in another mode (training or evaluation) than the model is in."""


class GeometryWarning(SymoptimWarning):
    """An optimizer does not do for these parameters what its name says, or it changes the function."""


class UngroupedWarning(SymoptimWarning):
    """A parameter of the model has a gradient and is in no group, so that it is not trained."""


class SlowWarning(SymoptimWarning):
    """What is installed makes something slower than it could be."""


def with_article(word: str) -> str:
    """A name of a class, with its article.

    >>> with_article("int"), with_article("Linear"), with_article("UserDict")
    ('an int', 'a Linear', 'a UserDict')
    """
    return f"{'an' if word[:1] in tuple('aeioAEIO') else 'a'} {word}"


def first_few(things: Iterable[object]) -> str:
    """The first few of a list of indices or names, for a message.

    >>> first_few([3]), first_few(range(9))
    ('3', '0, 1, 2, 3 and 5 more')
    """
    listed = list(map(str, things))
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if listed[4:] else "")


def callers() -> Iterator[FrameType]:
    """Frames of the function that asks and of all that called it, innermost first."""
    frame = inspect.currentframe()
    while frame is not None and (frame := frame.f_back) is not None:
        yield frame


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the caller's that led here, whatever of torch and of ours lies between."""
    level = 1
    for frame in callers():
        if frame.f_globals.get("__name__", "").split(".")[0] not in ("symoptim", "torch"):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level)
