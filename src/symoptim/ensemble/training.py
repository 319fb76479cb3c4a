"""An ensemble from its first epoch to its last: every run is watched, adjusted and, when it stops, let go.

>>> from symoptim.paper.data.digits import load_digits
>>> from symoptim.ensemble.run import Constant, FixedEpochs
>>> from symoptim.models import arch2
>>> run = Run(update="sm", rate=1e-2, schedule=Constant(), stopping=FixedEpochs(maximum=2), seed=0,
...           train=1000, validation=500)
>>> ensemble = Ensemble({"one": run}, lambda: arch2(2, inputs=64), load_digits(), batch=100)
>>> while ensemble.is_running:
...     results = ensemble.train_epoch()
>>> results["one"].outcome
Outcome(reason='all epochs done', diverged=False)
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from symoptim.ensemble.decisions import Epoch, Findings, Outcome, has_diverged, next_rate, why_stop
from symoptim.ensemble.numerics import full_float32
from symoptim.ensemble.run import Run
from symoptim.ensemble.stack import Factory
from symoptim.ensemble.trainer import Trainer
from symoptim.errors import OptionError
from symoptim.paper.data.split import Split


class Result(NamedTuple):
    """One more epoch of a run, how the run ended if it did, and what it left if there is more to tell."""

    epoch: Epoch
    outcome: Outcome | None
    findings: Findings | None = None


class Ensemble:
    """Runs that train together, each as if it were alone."""

    def __init__(
        self,
        runs: Mapping[str, Run],
        factory: Factory,
        data: Split,
        *,
        batch: int,
        device: torch.device | str = "cpu",
        test: bool = True,
    ) -> None:
        """Put the runs together; nothing is trained yet.

        Args:
            runs: by any names; all of the same numbers of images. Runs with the same update had better be
                neighbors: they step together.
            factory: makes the network, freshly initialized. Its loss is the cross-entropy, summed over the
                batch.
            data: images and labels.
            batch: images per step.
            device: where to train.
            test: whether to measure the test error after every epoch.
        """
        self.runs = dict(runs)
        self.running = list(runs)
        """Names of the runs that have not stopped, in the order they are stacked."""
        self.epochs = 0
        self.histories: dict[str, list[Epoch]] = {name: [] for name in runs}
        self._ended: dict[str, dict[str, Tensor]] = {}
        self._rates = {name: run.rate for name, run in runs.items()}
        self._is_started = False
        where = torch.device(device)
        self.trainer = Trainer(list(runs.values()), factory, data, batch=batch, device=where, test=test)

    @property
    def is_running(self) -> bool:
        """Whether any run has epochs left."""
        return bool(self.running)

    def start_epoch(self) -> None:
        """On CUDA, put the next epoch on its way: the host may go on to other work, another ensemble's say.

        Raises:
            OptionError: all runs have ended.
        """
        if self.trainer.device.type == "cuda":
            self._start_epoch()

    def _start_epoch(self) -> None:
        if not self.running:
            raise OptionError("all runs have ended: there is nothing left to train")
        with full_float32():
            self.trainer.start_epoch(self.epochs + 1)
        self._is_started = True

    def is_ready(self) -> bool:
        """Whether :meth:`train_epoch` has not to wait for an epoch that was started."""
        return not self._is_started or self.trainer.lane.is_done()

    def train_epoch(self) -> dict[str, Result]:
        """Train one epoch, or wait for the one that was started; then let go the runs that stop.

        The others get their next rate.

        Returns:
            What happened to every run that took part; ``histories`` has all epochs of all runs.

        Raises:
            OptionError: all runs have ended.
        """
        if not self._is_started:
            self._start_epoch()
        measured = [[float(number) for number in numbers] for numbers in self.trainer.finish_epoch()]
        self._is_started = False
        self.epochs += 1
        results: dict[str, Result] = {}
        for name, *numbers in zip(self.running, *measured, strict=True):
            history = self.histories[name]
            history.append(Epoch(self.epochs, self._rates[name], *numbers))
            reason = why_stop(self.runs[name].stopping, history)
            outcome = Outcome(reason, has_diverged(history[-1])) if reason else None
            results[name] = Result(history[-1], outcome)
        self._go_on_with([name for name in self.running if results[name].outcome is None])
        return results

    def _rate(self, name: str) -> float:
        """Rate of a run in the epoch after its history."""
        run, history = self.runs[name], self.histories[name]
        return next_rate(run.schedule, history) if history else run.rate

    def network(self, name: str) -> nn.Module:
        """A run's network as it is now, or as it was when the run ended; a copy, on the CPU.

        Args:
            name: of the run.

        Returns:
            The network, in evaluation mode.

        Raises:
            OptionError: there is no such run, or it had ended before this ensemble was taken up.
        """
        if name in self.running:
            (weights,) = self.trainer.stack.network_states([self.running.index(name)])
        elif name in self._ended:
            weights = self._ended[name]
        else:
            here = ", ".join([*self._ended, *self.running])
            raise OptionError(f"the network of run '{name}' is not here, only those of {here}")
        model = copy.deepcopy(self.trainer.stack.template)
        model.load_state_dict(weights)
        return model.eval()

    def _go_on_with(self, names: list[str]) -> None:
        ended = {name: row for row, name in enumerate(self.running) if name not in names}
        if ended:
            states = self.trainer.stack.network_states(list(ended.values()))
            self._ended |= dict(zip(ended, states, strict=True))
        if names and names != self.running:
            self.trainer.keep([index for index, name in enumerate(self.running) if name in names])
        self.running = names
        self._rates = {name: self._rate(name) for name in names}
        if names:
            self.trainer.set_rates(list(self._rates.values()))

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on after this epoch, as plain data and tensors.

        Raises:
            OptionError: the next epoch has been started.
        """
        if self._is_started:
            raise OptionError("an epoch is on its way: save after train_epoch, before start_epoch")
        return {
            "epochs": self.epochs,
            "running": list(self.running),
            "histories": {name: [tuple(e) for e in past] for name, past in self.histories.items()},
            "trainer": self.trainer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same runs: the result is the same, bit for bit.

        But for updates in the full metric on CUDA, whose sums are taken in any order.

        Raises:
            OptionError: a run that was saved running has ended here; nothing has changed.
        """
        for name in state["running"]:
            if name not in self.running:
                raise OptionError(f"run '{name}' has ended here, and goes on there: make the ensemble anew")
        self.epochs = state["epochs"]
        self.histories = {name: [Epoch(*e) for e in past] for name, past in state["histories"].items()}
        self._is_started = False
        self._go_on_with(state["running"])
        self._ended.clear()  # what they were when they ended has not been saved
        if self.running:
            self.trainer.load_state_dict(state["trainer"])
