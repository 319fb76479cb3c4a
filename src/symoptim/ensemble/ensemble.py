"""An ensemble from its first epoch to its last: rates are adjusted, and runs that stop are removed.

>>> from symoptim.ensemble import Constant, FixedEpochs, Split
>>> images, labels = torch.rand(120, 64), torch.randint(10, (120,))
>>> data = Split(images[:100], labels[:100], images[100:], labels[100:])
>>> run = Run(update="sm", rate=1e-2, schedule=Constant(), stopping=FixedEpochs(maximum=2), seed=0,
...           train=80, validation=20)
>>> ensemble = Ensemble({"one": run}, lambda: nn.Linear(64, 10), data, batch=20)
>>> while ensemble.is_running:
...     results = ensemble.train_epoch()
>>> results["one"].outcome.reason
'all epochs done'
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from symoptim.ensemble.epoch_rules import Epoch, Findings, Outcome, has_diverged, next_rate, stop_reason
from symoptim.ensemble.images import Split
from symoptim.ensemble.run import Run
from symoptim.ensemble.stacked_model import Factory
from symoptim.ensemble.trainer import Trainer
from symoptim.errors import OptionError
from symoptim.support.devices import full_float32


class Result(NamedTuple):
    """An epoch of a run, the outcome if the run ended with it, and scores and pictures of a run on scenes."""

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
        """Stack the runs; nothing is trained yet.

        Args:
            runs: by any names; all of the same numbers of images. List runs with the same update one after
                the other: neighbors step together, which is faster.
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
        self.trainer = Trainer(
            list(runs.values()), factory, data, batch=batch, device=torch.device(device), test=test
        )

    @property
    def is_running(self) -> bool:
        """Whether any run has epochs left."""
        return bool(self.running)

    def start_epoch(self) -> None:
        """On CUDA, start the next epoch and return, so that the host can start another ensemble's too.

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
        """Whether :meth:`train_epoch` would not wait for an epoch that was started."""
        return not self._is_started or self.trainer.stream.is_done()

    def train_epoch(self) -> dict[str, Result]:
        """Train one epoch, or wait for the one that was started; then remove the runs that stop.

        The others get their next rate.

        Returns:
            The result of every run that took part; ``histories`` has all epochs of all runs.

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
            reason = stop_reason(self.runs[name].stopping, history)
            outcome = Outcome(reason, has_diverged(history[-1])) if reason else None
            results[name] = Result(history[-1], outcome)
        self._keep([name for name in self.running if results[name].outcome is None])
        return results

    def network(self, name: str) -> nn.Module:
        """A run's network as it is now, or as it was when the run ended; a copy, on the CPU.

        Args:
            name: of the run.

        Returns:
            The network, in evaluation mode.

        Raises:
            OptionError: there is no such run, or it had ended when this ensemble's state was saved.
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

    def _keep(self, names: list[str]) -> None:
        """Store the networks of all other runs, and give these the rates of their next epoch."""
        ended = {name: row for row, name in enumerate(self.running) if name not in names}
        if ended:
            states = self.trainer.stack.network_states(list(ended.values()))
            self._ended |= dict(zip(ended, states, strict=True))
        if names and names != self.running:
            self.trainer.keep([index for index, name in enumerate(self.running) if name in names])
        self.running = names
        self._rates = {
            name: next_rate(run.schedule, past) if (past := self.histories[name]) else run.rate
            for name, run in ((name, self.runs[name]) for name in names)
        }
        if names:
            self.trainer.set_rates(list(self._rates.values()))

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on after this epoch, as plain data and tensors.

        Raises:
            OptionError: the next epoch has been started.
        """
        if self._is_started:
            raise OptionError("an epoch has been started: save after train_epoch, before start_epoch")
        return {
            "epochs": self.epochs,
            "running": list(self.running),
            "histories": {name: [tuple(e) for e in past] for name, past in self.histories.items()},
            "trainer": self.trainer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same runs: the result is the same, bit for bit.

        Only updates in the full metric on CUDA differ by rounding: their sums are taken in any order.

        Raises:
            OptionError: a run that was running when the state was saved has ended here; nothing has changed.
        """
        for name in state["running"]:
            if name not in self.running:
                raise OptionError(f"run '{name}' has ended here, and goes on there: make the ensemble anew")
        self.epochs = state["epochs"]
        self.histories = {name: [Epoch(*e) for e in past] for name, past in state["histories"].items()}
        self._is_started = False
        self._keep(state["running"])
        self._ended.clear()  # networks of ended runs are not saved
        if self.running:
            self.trainer.load_state_dict(state["trainer"])
