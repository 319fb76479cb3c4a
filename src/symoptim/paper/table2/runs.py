"""From the protocol to runs: which runs there are, what each is called, and which train together.

Seeds belong to a repeat, not to a cell: in one repeat all updates and schedules, on both architectures,
start from the same weights (where shapes agree) and see the same images in the same order, so that they
differ in nothing but themselves. Selection and full runs have different ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from symoptim.ensemble.images import Split
from symoptim.ensemble.run import Constant, FixedEpochs, Run, Schedule, Stopping
from symoptim.models.balance import start_balanced
from symoptim.models.pairwise import arch1, arch2
from symoptim.paper.choices import Architecture, ScheduleName
from symoptim.paper.table2.protocol import Protocol
from symoptim.support.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Shape:
    """A network's shape: runs of one shape train together."""

    architecture: Architecture
    depth: int

    def __str__(self) -> str:
        return f"{self.architecture}-{self.depth}"


def shapes(protocol: Protocol) -> list[Shape]:
    """All network shapes of a protocol, small ones first."""
    return [Shape(a, depth) for depth in protocol.depths for a in protocol.architectures]


class Planned(NamedTuple):
    """A run with what it stands for."""

    labels: Mapping[str, object]
    run: Run


def selection_runs(protocol: Protocol, shape: Shape) -> dict[str, Planned]:
    """Short runs at every candidate rate, for every update and repeat."""
    planned: dict[str, Planned] = {}
    for update in protocol.updates:
        for repeat in range(protocol.repeats):
            for rate in protocol.rates:
                labels = {"phase": "selection", "architecture": shape.architecture, "depth": shape.depth}
                run = Run(
                    update=update,
                    rate=rate,
                    schedule=Constant(),
                    stopping=FixedEpochs(maximum=protocol.selection_epochs),
                    seed=derive_seed(protocol.seed, "selection", repeat),
                    train=protocol.selection_train,
                    validation=protocol.selection_validation,
                )
                name = f"selection/{shape}/{update}/{repeat}/{rate:g}"
                planned[name] = Planned({**labels, "update": update, "rate": rate, "repeat": repeat}, run)
    return planned


Chosen = Callable[[str, int], float | None]
"""``(update, repeat) -> rate`` that the selection chose; None if every candidate diverged."""


class FullLabels(NamedTuple):
    """What a full run stands for."""

    phase: str
    architecture: Architecture
    depth: int
    update: str
    schedule: ScheduleName
    repeat: int


def full_labels(protocol: Protocol, shape: Shape) -> dict[str, FullLabels]:
    """All full runs of a shape by name, with a rate or without, updates in blocks."""
    return {
        f"full/{shape}/{update}/{schedule}/{repeat}": FullLabels(
            "full", shape.architecture, shape.depth, update, schedule, repeat
        )
        for update in protocol.updates
        for repeat in range(protocol.repeats)  # neighbors see the same images, which saves time
        for schedule in protocol.schedules
    }


def full_runs(protocol: Protocol, shape: Shape, chosen: Chosen) -> dict[str, Planned]:
    """Full runs at the chosen rates; those without a rate are left out."""
    planned: dict[str, Planned] = {}
    for name, labels in full_labels(protocol, shape).items():
        rate = chosen(labels.update, labels.repeat)
        if rate is not None:
            schedule, stopping = _rules(protocol, labels.schedule)
            run = Run(
                update=labels.update,
                rate=rate,
                schedule=schedule,
                stopping=stopping,
                seed=derive_seed(protocol.seed, "full", labels.repeat),
                train=protocol.train,
                validation=protocol.validation,
            )
            planned[name] = Planned(labels._asdict(), run)
    return planned


def _rules(protocol: Protocol, name: ScheduleName) -> tuple[Schedule, Stopping]:
    """A schedule comes with its way to stop: exponential decay runs to the end, the bold driver may stop."""
    match name:
        case "exponential":
            return protocol.exponential, FixedEpochs(maximum=protocol.stopping.maximum)
        case "bold":
            return protocol.bold, protocol.stopping


def network_of(protocol: Protocol, shape: Shape, data: Split) -> Callable[[], nn.Module]:
    """Factory of a shape's network, for the images of a data set."""
    make = {"arch1": arch1, "arch2": arch2}[shape.architecture]
    inputs, classes = data.train_images.shape[1], int(data.train_labels.max()) + 1

    def network() -> nn.Module:
        model = make(shape.depth, inputs=inputs, classes=classes)
        if protocol.classifier == "columns":
            nn.init.normal_(model.classifier.weight)
            start_balanced(model, classifier="columns")
        return model

    return network
