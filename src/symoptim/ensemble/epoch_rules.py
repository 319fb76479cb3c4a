"""What is decided about a run between epochs: its next rate, whether it stops, whether it has diverged.

Pure functions of the run's own history, so that no run can influence another.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from symoptim.ensemble.run import Bold, Constant, Cosine, Exponential, FixedEpochs, Schedule, Stopping
from symoptim.schedules.functions import bold_driver, cosine, exponential


class Epoch(NamedTuple):
    """One epoch of one run: its rate, and what was measured; NaN where it was not.

    Loss (mean per image) and training error are those of the training steps, batch by batch; validation and
    test error are measured after the epoch. Errors are shares of images that are wrong, or, of
    segmentations, what is missing to a mean intersection over union of one.
    """

    number: int
    rate: float
    loss: float
    train_error: float
    validation_error: float
    test_error: float


class Outcome(NamedTuple):
    """How a run ended: why, and whether it counts."""

    reason: str
    diverged: bool


class Findings(NamedTuple):
    """What is recorded of a run on scenes when it has ended.

    The seconds it took; pixels by true and predicted class, of each set of scenes; and its predictions of the
    examples, as picture files.
    """

    seconds: float
    confusions: Mapping[str, Sequence[Sequence[int]]]
    pictures: Mapping[str, bytes]


def next_rate(schedule: Schedule, history: Sequence[Epoch]) -> float:
    """Rate of the epoch after the last one of ``history``.

    >>> epochs = [Epoch(1, 0.1, 2.0, 0, 0, 0), Epoch(2, 0.1, math.nan, 0, 0, 0)]
    >>> next_rate(Bold(shrink=0.5), epochs)
    0.05
    """
    now = history[-1]
    rate = torch.tensor(now.rate, dtype=torch.float64)
    match schedule:
        case Constant():
            return now.rate
        case Exponential(decay=decay):
            return exponential(rate, decay=decay).item()
        case Bold(grow=grow, shrink=shrink):
            loss = torch.tensor(now.loss, dtype=torch.float64)
            last = torch.tensor(history[-2].loss, dtype=torch.float64) if len(history) > 1 else None
            return bold_driver(rate, loss, last, grow=grow, shrink=shrink).item()
        case Cosine(epochs=epochs):
            start = torch.tensor(history[0].rate, dtype=torch.float64)
            return cosine(start, now.number, epochs).item()


def stop_reason(stopping: Stopping, history: Sequence[Epoch]) -> str | None:
    """Reason to stop after the last epoch of ``history``, or None to go on.

    Beyond the minimum, :class:`.run.EarlyStopping` stops a run when its training error rate is below
    ``train_error``, when its validation error is above that of ``lookback`` epochs earlier, or when it
    differs by less than ``change`` from the last one (arXiv:1511.01754, section 5).

    >>> stop_reason(FixedEpochs(maximum=1), [Epoch(1, 0.1, 2.0, 0.5, 0.5, 0.5)])
    'all epochs done'
    """
    now = history[-1]
    if now.number >= stopping.maximum:
        return "all epochs done"
    if isinstance(stopping, FixedEpochs) or now.number <= stopping.minimum:
        return None
    last, earlier = history[-2], history[-1 - stopping.lookback]
    if now.train_error < stopping.train_error:
        return f"training error below {stopping.train_error:g}"
    if now.validation_error > earlier.validation_error:
        return f"validation error above that of {stopping.lookback} epochs earlier"
    if abs(now.validation_error - last.validation_error) < stopping.change:
        return f"validation error changed by less than {stopping.change:g}"
    return None


def has_diverged(last: Epoch) -> bool:
    """Whether a run that ended with this epoch has diverged: no finite loss, or wrong more often than right.

    Only the last epoch counts: the bold driver may bring a run back from a loss that was infinite once.

    >>> has_diverged(Epoch(60, 0.1, math.nan, 0.9, 0.9, 0.9))
    True
    """
    return not math.isfinite(last.loss) or last.validation_error > 0.5
