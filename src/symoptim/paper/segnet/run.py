"""What one run on scenes is: frozen, printable, and all that its result depends on besides the data."""

from dataclasses import dataclass

from symoptim.ensemble.run import FixedEpochs, Schedule, named_plainly, require_rules
from symoptim.errors import OptionError
from symoptim.paper.segnet.augment import Augmentation
from symoptim.paper.segnet.updates import require_updates
from symoptim.paper.segnet.weights import Weighting


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneRun:
    """One run: ``seed`` decides its weights, the order of its batches and what is done to its images.

    ``rate`` multiplies the gradient of the mean loss, as torch users expect. Images that do not fill a batch
    at the end of an epoch are left out of it. The validation set is looked at every ``measure_every``
    epochs and after the last.
    """

    update: str
    rate: float
    schedule: Schedule
    stopping: FixedEpochs
    seed: int
    batch: int
    weighting: Weighting
    augmentation: Augmentation
    measure_every: int

    def __post_init__(self) -> None:
        require_rules(self.rate, self.schedule, self.stopping)
        require_updates([self.update])
        if not isinstance(self.stopping, FixedEpochs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"runs on scenes train a fixed number of epochs, got {self.stopping!r}")
        for name in ("batch", "measure_every"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, got {getattr(self, name)}")

    def as_dict(self) -> dict[str, object]:
        """Plain data, for records: the alternatives are named by their class."""
        return named_plainly(self, "schedule", "stopping")
