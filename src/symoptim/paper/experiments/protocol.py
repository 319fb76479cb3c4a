"""The MNIST experiment as data: every number of the paper's protocol, in two sizes.

    paper    the protocol of arXiv:1511.01754, section 5, in full: 24 cells, 10 repeats each
    quick    the same rules on 2 layers, fewer images, epochs and repeats: less than a minute of one CPU core

Where the paper is silent or says it differently: pixels are divided by 255, the bold driver's factors are
1.1 and 0.5, the classifier starts with rows of unit norm.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from symoptim.ensemble.registry import require_updates
from symoptim.ensemble.run import Bold, EarlyStopping, Exponential
from symoptim.errors import OptionError
from symoptim.paper.experiments.names import Architecture, Classifier, DataName, ProfileName, ScheduleName


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """What is trained and how; the defaults are the paper's."""

    updates: tuple[str, ...] = ("b-sgd", "sm", "un")
    architectures: tuple[Architecture, ...] = ("arch1", "arch2")
    depths: tuple[int, ...] = (2, 4)
    schedules: tuple[ScheduleName, ...] = ("exponential", "bold")
    repeats: int = 10
    seed: int = 0
    batch: int = 100
    # Selection of the rate: for every repeat, and for both schedules together.
    rates: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    selection_train: int = 1_000
    selection_validation: int = 500
    selection_epochs: int = 50
    # The full runs.
    train: int = 50_000
    validation: int = 10_000
    exponential: Exponential = field(default_factory=Exponential)
    bold: Bold = field(default_factory=Bold)
    stopping: EarlyStopping = field(default_factory=EarlyStopping)
    classifier: Classifier = "rows"

    def __post_init__(self) -> None:
        require_updates(self.updates)
        if len(set(self.updates)) != len(self.updates) or not self.updates:
            named = ", ".join(self.updates) or "none"
            raise OptionError(f"updates must be different and at least one, got {named}")
        if self.repeats < 1:
            raise OptionError(f"repeats must be at least 1, got {self.repeats}")
        if self.seed < 0:
            raise OptionError(f"seed must be 0 or more, got {self.seed}")

    def require_images(self, available: int) -> None:
        """Refuse data with too few training images, before anything is trained."""
        for train, validation in (
            (self.selection_train, self.selection_validation),
            (self.train, self.validation),
        ):
            if train + validation > available:
                raise OptionError(
                    f"this protocol needs {train} + {validation} training images, the data have {available}"
                )

    def as_dict(self) -> dict[str, object]:
        """Plain data, for the records."""
        return asdict(self)


# Quick: small enough for two CPU cores, large enough for every rule to have its turn.
PROFILES: dict[ProfileName, dict[str, Any]] = {
    "paper": {},
    "quick": {
        "depths": (2,),
        "repeats": 3,
        "selection_epochs": 20,
        "train": 10_000,
        "validation": 2_000,
        "stopping": EarlyStopping(minimum=6, maximum=10),
    },
}
# Digits has 1,500 training images: as many for the selection as MNIST's has, and all for the full runs.
_DIGITS: dict[str, Any] = {"train": 1_200, "validation": 300}


def protocol_for(profile: ProfileName, data: DataName, **changes: Any) -> Protocol:
    """The protocol of a profile for a data set, with changes; those that are None change nothing.

    Args:
        profile: how much of it.
        data: name of the data set.
        **changes: fields of :class:`Protocol`.

    Returns:
        The protocol.

    Raises:
        OptionError: a change breaks a rule.

    >>> protocol_for("paper", "mnist", repeats=None) == Protocol()
    True
    """
    sizes = _DIGITS if data == "digits" else dict[str, Any]()
    asked = {name: value for name, value in changes.items() if value is not None}
    return Protocol(**{**PROFILES[profile], **sizes, **asked})
