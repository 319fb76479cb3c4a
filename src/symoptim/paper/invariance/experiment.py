"""One network, two scalings of its weights: does an update train them alike?

Both start from the same function and see the same batches, in float64. Plain SGD trains the two scalings
differently; the updates of the paper do not see the scaling, and their loss curves agree to rounding.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar, cast, get_args

import torch

from symoptim.ensemble.ensemble import Ensemble
from symoptim.ensemble.images import Split
from symoptim.ensemble.run import Constant, FixedEpochs, Run
from symoptim.errors import OptionError
from symoptim.models.pairwise import PairwiseNetwork, arch1, arch2
from symoptim.paper.choices import Architecture, DataName, Loss, configured, require_choice, require_positive
from symoptim.paper.data.datasets import digest_of, load
from symoptim.paper.invariance.pairs import PHASE, STARTS
from symoptim.paper.records.database import Plain
from symoptim.paper.records.runs import RunRow
from symoptim.paper.runner import Experiment, Item, Phase, ReadRuns, Request, Task
from symoptim.support.seeds import derive_seed

# UN fixes one of Arch1's scalings instead of being invariant to them, so it has no panel there.
PANELS: dict[Architecture, tuple[str, ...]] = {"arch1": ("b-sgd", "sm"), "arch2": ("b-sgd", "sm", "un")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescaling:
    """The protocol: scales are log-uniform between 1/spread and spread, and the rate is constant.

    With ``spread`` 4 plain SGD splits and still trains. The others coincide up to a spread of a million and
    some 8 layers; beyond that features without variance, which batch normalization divides by, magnify
    rounding.
    """

    depth: int = 2
    epochs: int = 25
    spread: float = 4.0
    rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 < self.spread <= 1e6:
            raise OptionError(f"spread must be above 1 and at most 1e6, got {self.spread:g}")
        require_positive(self, "epochs")


@dataclass(frozen=True, slots=True)
class Invariance(Experiment):
    """A rescaling with its data, of which one sixth of the training images are left aside."""

    name: ClassVar[str] = "invariance"
    loss: ClassVar[Loss] = "sum"
    protocol: Rescaling
    data: Split
    device: torch.device
    data_name: DataName = "digits"

    @property
    def folder(self) -> str:
        """Name of the folder its results go to by default."""
        return self.name

    def configuration(self) -> Plain:
        """All that the results depend on."""
        protocol = asdict(self.protocol)
        return {"data": self.data_name, "digest": digest_of(self.data), "protocol": protocol}

    def expected(self) -> list[Task]:
        """Every panel, from both scalings."""
        return [task for a in PANELS for start in STARTS for task in self._tasks(a, start).values()]

    def phases(self, runs: ReadRuns) -> list[Iterator[Item]]:  # noqa: ARG002 - nothing depends on results
        """A single sequence."""
        exact = Split(*(t.double() if t.is_floating_point() else t for t in self.data))
        return [self._all(exact)]

    def _all(self, data: Split) -> Iterator[Item]:
        for architecture in PANELS:
            for start in STARTS:
                yield self._phase(architecture, start, data)

    def _phase(self, architecture: Architecture, start: str, data: Split) -> Phase:
        runs = {_name(architecture, start, update): self._run(update) for update in PANELS[architecture]}
        network = self.network(architecture, start)
        return Phase(
            f"{architecture}/{start}",
            self._tasks(architecture, start),
            lambda: Ensemble(runs, network, data, batch=100, device=self.device, test=False),
        )

    def _tasks(self, architecture: Architecture, start: str) -> dict[str, Task]:
        tasks: dict[str, Task] = {}
        for update in PANELS[architecture]:
            name, run = _name(architecture, start, update), self._run(update)
            labels = {"phase": PHASE, "architecture": architecture, "update": update, "start": start}
            tasks[name] = Task(RunRow(name, labels, run.as_dict()), run.train, run.stopping.maximum)
        return tasks

    def _run(self, update: str) -> Run:
        images = len(self.data.train_labels)
        return Run(
            update=update,
            rate=self.protocol.rate,
            schedule=Constant(),
            stopping=FixedEpochs(maximum=self.protocol.epochs),
            seed=derive_seed(self.protocol.seed, "invariance"),
            train=images - images // 6,
            validation=images // 6,
        )

    def network(self, architecture: Architecture, start: str) -> Callable[[], PairwiseNetwork]:
        """Factory of the balanced network, or of the same one rescaled."""
        protocol, inputs = self.protocol, self.data.train_images.shape[1]

        def balanced() -> PairwiseNetwork:
            if architecture == "arch1":
                return arch1(protocol.depth, inputs=inputs).double()
            # An eps too small to matter: batch normalization hides a filter's scale only as far as it is.
            return arch2(protocol.depth, inputs=inputs, eps=1e-30).double()

        def rescaled() -> PairwiseNetwork:
            model = balanced()
            seed = derive_seed(protocol.seed, "scales") % 2**31
            scales = model.random_scales(seed=seed, low=1 / protocol.spread, high=protocol.spread)
            return model.rescale_(scales)

        return balanced if start == "balanced" else rescaled


def _name(architecture: Architecture, start: str, update: str) -> str:
    return f"{architecture}/{update}/{start}"


def prepare(request: Request) -> Invariance:
    """The experiment that was asked for, with its images; there is no profile."""
    protocol = configured(Rescaling, {}, request.changes)
    require_choice("data set", request.data or "digits", get_args(DataName))
    name = cast(DataName, request.data or "digits")
    return Invariance(protocol, load(name, request.data_dir, progress=request.download), request.device, name)
