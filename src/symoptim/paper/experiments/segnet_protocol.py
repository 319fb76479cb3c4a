"""The SegNet experiment as data, in two sizes.

    paper    SegNet on CamVid at full size: a search for the rate, then repeats of 100 epochs; for a GPU
    quick    SegNet-Basic with 32 features at 90 x 120 pixels, one run of 12 epochs: three minutes on two
             CPU cores

The paper shows pictures and gives no numbers. What is trained how is therefore decided here, alike for all
updates: zooms and flips, square roots of median-frequency weights, a rate that falls along a cosine.

Rates are chosen in two rounds, both by the validation set. Short runs on crops try one grid of rates for
all updates, which also shows how sensitive each update is to its rate. But the longer a run, the smaller
the rate it wants: so the best three of each update run in full, and the best of these is repeated.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from symoptim.ensemble.run import Bold, Cosine, Exponential, Schedule
from symoptim.errors import OptionError
from symoptim.paper.experiments.names import NetworkName, ProfileName, SceneScheduleName, WeightingName
from symoptim.paper.segnet.augment import Augmentation
from symoptim.paper.segnet.updates import require_updates


@dataclass(frozen=True, kw_only=True, slots=True)
class SegNetProtocol:
    """What is trained and how; ``features`` are those of the first layer, 64 in both published networks."""

    updates: tuple[str, ...] = ("un", "sm", "sgd", "sgd-plain", "adamw")
    network: NetworkName = "segnet"
    features: int = 64
    size: tuple[int, int] = (360, 480)
    epochs: int = 100
    repeats: int = 3
    seed: int = 0
    batch: int = 8
    schedule: SceneScheduleName = "cosine"
    weighting: WeightingName = "root"
    augmentation: Augmentation = field(default_factory=lambda: Augmentation(zoom=(0.6, 1.2), flip=True))
    measure_every: int = 20
    # The search for the rate; without any rates every update takes the one it is registered with.
    rates: tuple[float, ...] = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
    search_epochs: int = 20
    search_crop: tuple[int, int] | None = (180, 240)
    finalists: int = 3

    def __post_init__(self) -> None:
        require_updates(self.updates)
        if len(set(self.updates)) != len(self.updates) or not self.updates:
            named = ", ".join(self.updates) or "none"
            raise OptionError(f"updates must be different and at least one, got {named}")
        for name in ("features", "epochs", "repeats", "batch", "measure_every", "search_epochs", "finalists"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise OptionError(f"seed must be 0 or more, got {self.seed}")
        if any(not 0 < rate < float("inf") for rate in self.rates):
            raise OptionError(f"rates must be finite numbers above 0, got {_typed(self.rates)}")
        if len({f"{rate:g}" for rate in self.rates}) < len(self.rates):
            raise OptionError(f"rates must differ in their first six digits, got {_typed(self.rates)}")
        for cut in (self.augmentation.crop, self.search_crop if self.rates else None):
            if cut is not None and (cut[0] > self.size[0] or cut[1] > self.size[1]):
                raise OptionError(
                    f"a crop of {cut[0]} x {cut[1]} does not fit into {self.size[0]} x {self.size[1]}"
                )

    def schedule_over(self, epochs: int) -> Schedule:
        """The schedule of a run of so many epochs; exponential decay ends at a hundredth of the rate."""
        match self.schedule:
            case "cosine":
                return Cosine(epochs=epochs)
            case "exponential":
                return Exponential(decay=0.01 ** (1 / epochs))
            case "bold":
                return Bold()

    @property
    def places(self) -> int:
        """Rates of an update that run in full; one where nothing is searched for."""
        return min(self.finalists, len(self.rates)) or 1

    def as_dict(self) -> dict[str, object]:
        """Plain data, for the records."""
        return asdict(self)


def _typed(rates: tuple[float, ...]) -> str:
    """Rates as one would type them."""
    return ", ".join(f"{rate:g}" for rate in rates)


PROFILES: dict[ProfileName, dict[str, Any]] = {
    "paper": {},
    "quick": {
        "updates": ("un",),
        "network": "segnet-basic",
        "features": 32,
        "size": (90, 120),
        "epochs": 12,
        "repeats": 1,
        "batch": 4,
        "augmentation": Augmentation(flip=True),
        "measure_every": 3,
        "rates": (),
        "search_epochs": 4,
        "search_crop": None,
    },
}


def segnet_protocol(profile: ProfileName, **changes: Any) -> SegNetProtocol:
    """The protocol of a profile, with changes; those that are None change nothing.

    Args:
        profile: how much of it.
        **changes: fields of :class:`SegNetProtocol`.

    Returns:
        The protocol.

    Raises:
        OptionError: a change breaks a rule.

    >>> segnet_protocol("paper", epochs=None) == SegNetProtocol()
    True
    """
    asked = {name: value for name, value in changes.items() if value is not None}
    return SegNetProtocol(**{**PROFILES[profile], **asked})
