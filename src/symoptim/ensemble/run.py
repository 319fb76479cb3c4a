"""A training run as data: frozen, printable, and all that its result depends on besides model and images."""

from dataclasses import asdict, dataclass
from typing import Any, get_args

from symoptim.errors import OptionError


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """The rate never changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exponential:
    """The rate is multiplied by ``decay`` after every epoch."""

    decay: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise OptionError(f"decay must be in (0, 1], got {self.decay}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bold:
    """The bold driver: the rate grows after an epoch whose loss is not higher, else it shrinks."""

    grow: float = 1.1
    shrink: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.grow < float("inf"):
            raise OptionError(f"grow must be a finite number >= 1, got {self.grow}")
        if not 0 < self.shrink < 1:
            raise OptionError(f"shrink must be in (0, 1), got {self.shrink}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosine:
    """The rate falls along half a cosine, from where it starts to nearly zero in the last of ``epochs``."""

    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise OptionError(f"a cosine needs at least 1 epoch, got {self.epochs}")


Schedule = Constant | Exponential | Bold | Cosine


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedEpochs:
    """Train that many epochs, whatever happens."""

    maximum: int

    def __post_init__(self) -> None:
        if self.maximum < 1:
            raise OptionError(f"a run needs at least 1 epoch, got {self.maximum}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStopping:
    """The paper's three rules, from epoch ``minimum + 1`` on; see :func:`.epoch_rules.stop_reason`."""

    minimum: int = 25
    maximum: int = 60
    train_error: float = 1e-5
    lookback: int = 5
    change: float = 1e-5

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise OptionError(
                f"epochs must satisfy 1 <= minimum <= maximum, got {self.minimum} and {self.maximum}"
            )
        if not 1 <= self.lookback <= self.minimum:
            raise OptionError(f"lookback must be in 1..{self.minimum} (the minimum), got {self.lookback}")


Stopping = FixedEpochs | EarlyStopping


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run: ``seed`` decides its weights, its split and the order of its batches.

    ``rate`` multiplies the gradient of the loss *summed* over a batch, as in the paper: what torch users
    with a mean loss call 0.1 is 0.001 here, at 100 images per batch. The split is
    ``train`` images to learn from and ``validation`` others, drawn at random.
    """

    update: str
    rate: float
    schedule: Schedule
    stopping: Stopping
    seed: int
    train: int
    validation: int

    def __post_init__(self) -> None:
        require_rules(self.rate, self.schedule, self.stopping)
        if self.train < 1 or self.validation < 1:
            raise OptionError(
                f"train and validation must be at least 1 image, got {self.train} and {self.validation}"
            )

    def as_dict(self) -> dict[str, object]:
        """Plain data, for records: the alternatives are named by their class.

        >>> two = FixedEpochs(maximum=2)
        >>> run = Run(update="sm", rate=0.1, schedule=Bold(), stopping=two, seed=0, train=9, validation=1)
        >>> run.as_dict()["schedule"]
        {'kind': 'Bold', 'grow': 1.1, 'shrink': 0.5}
        """
        return named_plainly(self, "schedule", "stopping")


def named_plainly(record: Any, *alternatives: str) -> dict[str, object]:
    """A dataclass as plain data; fields that can be of several classes also name theirs."""
    plain = asdict(record)
    for name in alternatives:
        plain[name] = {"kind": type(getattr(record, name)).__name__, **plain[name]}
    return plain


def require_rules(rate: float, schedule: object, stopping: object) -> None:
    """Refuse a rate that is not positive and finite, and schedules and stopping rules of other types."""
    for name, value, kinds in (("schedule", schedule, Schedule), ("stopping", stopping, Stopping)):
        if not isinstance(value, kinds):
            choices = ", ".join(kind.__name__ for kind in get_args(kinds))
            raise OptionError(f"{name} must be one of {choices}, got {value!r}")
    if not 0 < rate < float("inf"):
        raise OptionError(f"rate must be a finite number above 0, got {rate}")
