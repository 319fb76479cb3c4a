"""A run on scenes from its first epoch to its last; recorded like an ensemble of one run.

>>> from symoptim.paper.data.roads import draw_roads
>>> from symoptim.ensemble.run import Cosine, FixedEpochs
>>> from symoptim.models import SegNetBasic
>>> from symoptim.paper.segnet.augment import Augmentation
>>> parts = [draw_roads(4, height=16, width=16, seed=seed) for seed in range(3)]
>>> run = SceneRun(update="un", rate=0.1, schedule=Cosine(epochs=2), stopping=FixedEpochs(maximum=2), seed=0,
...                batch=2, weighting="none", augmentation=Augmentation(flip=True), measure_every=1)
>>> training = SceneTraining("one", run, lambda: SegNetBasic(features=4), SceneSplit(*parts))
>>> while training.is_running:
...     result = training.train_epoch()["one"]
>>> result.outcome
Outcome(reason='all epochs done', diverged=False)
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from symoptim.ensemble.ensemble import Result
from symoptim.ensemble.epoch_rules import Epoch, Findings, Outcome, next_rate, stop_reason
from symoptim.errors import OptionError
from symoptim.paper.data.scenes import SceneSplit
from symoptim.paper.segnet.images import label_png
from symoptim.paper.segnet.runs import SceneRun
from symoptim.paper.segnet.scores import scores_of
from symoptim.paper.segnet.trainer import SceneTrainer
from symoptim.support.devices import tuned_convolutions


class SceneTraining:
    """One run, watched and adjusted between epochs."""

    def __init__(
        self,
        name: str,
        run: SceneRun,
        factory: Callable[[], nn.Module],
        data: SceneSplit,
        *,
        examples: Sequence[str] = (),
        compiled: bool = False,
    ) -> None:
        """Prepare the run; nothing is trained yet.

        Args:
            name: of the run.
            run: what to do.
            factory: makes the network, freshly initialized; it takes pixels from 0 to 255.
            data: scenes, on the device to train on.
            examples: names of test images whose segmentation is to be kept.
            compiled: whether steps go through ``torch.compile``.
        """
        self.name = name
        self.running = [name]
        self.history: list[Epoch] = []
        self.examples = list(examples)
        self.seconds = 0.0
        self.trainer = SceneTrainer(run, factory, data, compiled=compiled)

    @property
    def is_running(self) -> bool:
        """Whether there are epochs left."""
        return bool(self.running)

    @property
    def epochs(self) -> int:
        """Number of epochs done."""
        return len(self.history)

    def start_epoch(self) -> None:
        """Nothing: one network at a time keeps a device busy."""

    def is_ready(self) -> bool:
        """Always: nothing is on its way."""
        return True

    def train_epoch(self) -> dict[str, Result]:
        """Train one epoch, and measure where it is time to; a run without a finite loss ends at once.

        With the last epoch come confusion matrices of all three sets and the segmented examples.
        """
        if not self.running:
            raise OptionError(f"run '{self.name}' has ended: there is nothing left to train")
        began = time.perf_counter()
        run, number = self.trainer.run, self.epochs + 1
        rate = next_rate(run.schedule, self.history) if self.history else run.rate
        with tuned_convolutions():
            loss = self.trainer.train_epoch(number, rate)
            outcome = _outcome(run, Epoch(number, rate, loss, math.nan, math.nan, math.nan))
            matrices = self._measure(number, outcome)
        errors = [1 - scores_of(matrices[part]).mean_iou if part in matrices else math.nan for part in PARTS]
        self.history.append(Epoch(number, rate, loss, *errors))
        self.seconds += time.perf_counter() - began
        if outcome is None:
            return {self.name: Result(self.history[-1], None)}
        self.running = []
        return {self.name: Result(self.history[-1], outcome, self._findings(matrices))}

    def _measure(self, number: int, outcome: Outcome | None) -> dict[str, list[list[int]]]:
        """Confusion matrices of all sets at the end, of the validation set before, none if it diverged."""
        data, run = self.trainer.data, self.trainer.run
        if (outcome is None and number % run.measure_every) or (outcome and outcome.diverged):
            return {}
        self.trainer.reestimate()
        parts = PARTS if outcome else ("validation",)
        return {part: self.trainer.confusion(getattr(data, part)) for part in parts}

    def _findings(self, matrices: Mapping[str, list[list[int]]]) -> Findings:
        if not matrices:
            return Findings(self.seconds, {}, {})
        test = self.trainer.data.test
        pictures = {
            name: label_png(self.trainer.predict(test.images[[test.names.index(name)]])[0])
            for name in self.examples
        }
        return Findings(self.seconds, matrices, pictures)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on after this epoch, as plain data and tensors."""
        return {
            "running": list(self.running),
            "history": [tuple(epoch) for epoch in self.history],
            "seconds": self.seconds,
            "trainer": self.trainer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same run: on the CPU, bit for bit."""
        self.running = list(state["running"])
        self.history = [Epoch(*epoch) for epoch in state["history"]]
        self.seconds = state["seconds"]
        self.trainer.load_state_dict(state["trainer"])


PARTS = ("train", "validation", "test")
"""Sets of scenes, in the order of an epoch's errors."""


def _outcome(run: SceneRun, now: Epoch) -> Outcome | None:
    """How the run ends with this epoch, if it does: weights that gave no finite loss never recover."""
    if not math.isfinite(now.loss):
        return Outcome("the loss is not finite", diverged=True)
    reason = stop_reason(run.stopping, [now])
    return Outcome(reason, diverged=False) if reason else None
