"""A group of the paper's networks whose step is a few launches: two large products, Triton for the rest."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from symoptim.ensemble.batch_norm import Norm, require_several
from symoptim.ensemble.group import Group
from symoptim.ensemble.images import Batch
from symoptim.ensemble.pairwise import Layer, Pairwise
from symoptim.ensemble.steppers import PureStepper, Stepper
from symoptim.kernels.triton.ahead import Launch, compile_all
from symoptim.optim.fused_support import KINDS
from symoptim.updates.catalog import PLAIN, SCALED

SMALLEST_TILE = 16  # what Triton multiplies
ROWS = 4  # of the first layer that a program steps
LARGEST_TILE = 2**16  # entries; more than a program has registers for


class Room:
    """Memory for batches of one size: images, labels, and what layers hand to each other.

    Where examples come last they are padded to a tile, with zeros that stay.
    """

    def __init__(self, network: Pairwise, count: int) -> None:
        """For so many examples of every run."""
        first = network.layers[0].filters
        runs, width, pixels = first.shape
        self.images = first.new_empty(runs, count, pixels)
        self.targets = torch.empty(runs, count, dtype=torch.int64, device=first.device)
        padded = _tile(count)
        self.responses = [first.new_zeros(runs, width, padded) for _ in network.layers]
        self.pooled = [first.new_zeros(runs, width // 2, padded) for _ in network.layers]
        self.changes = [first.new_zeros(runs, width // 2, padded) for _ in network.layers]
        self.errors = first.new_zeros(runs, _tile(network.classifier.shape[1]), padded)
        self.left = first.new_zeros(runs, width, padded)
        self.gradient = torch.empty_like(first)
        self.some = min(32, width // 2, padded)
        """Places that products go over at a time."""


def can_fuse(group: Group, batch: int) -> bool:
    """Whether the kernels know the networks and updates of a group, in batches of that size."""
    network = group.network
    if not isinstance(network, Pairwise) or find_spec("triton") is None:
        return False
    filters = network.layers[0].filters
    pairs = filters.shape[1] // 2
    known = filters.dtype == torch.float32 and all(_kinds(stepper) for stepper in group.steppers)
    largest = max(pairs * _tile(batch), ROWS * _tile(filters.shape[2]))
    return known and pairs >= SMALLEST_TILE and pairs & (pairs - 1) == 0 and largest <= LARGEST_TILE


def _kinds(stepper: Stepper) -> tuple[int, int] | None:
    """Numbers of the updates of rows and columns; None if the kernels do not have them."""
    if not isinstance(stepper, PureStepper):
        return None
    rows, columns, plain = (stepper.update.updates[name] for name in ("rows", "columns", "plain"))
    if rows not in KINDS or columns not in (PLAIN, SCALED) or plain != PLAIN:
        return None
    return KINDS[rows], KINDS[columns]


class FusedGroup:
    """A group that steps by kernels; see :func:`can_fuse`."""

    def __init__(self, group: Group, rates: Tensor) -> None:
        """Step the runs of that group, at these rates ``(r,)``."""
        assert isinstance(group.network, Pairwise)
        self.group = group
        self.network = group.network
        self.rates = rates
        kinds = [kind for s in group.steppers for kind in [_kinds(s)] * len(s.block.rows) if kind]
        self.rows, self.columns = (
            torch.tensor(numbers, dtype=torch.int32, device=rates.device)
            for numbers in zip(*kinds, strict=True)
        )
        self.rooms: dict[int, Room] = {}
        # Not before: they need Triton, and are what it makes of them.
        self.layers: Any = import_module("symoptim.ensemble.fused.layers")
        self.steps: Any = import_module("symoptim.ensemble.fused.steps")

    def measure(self, *, test: bool) -> None:
        """Count wrong answers."""
        self.group.measure(test=test)

    def step(self, batch: Batch) -> None:
        """One step of every run on its training images of a batch."""
        count, layers = len(batch.offsets), self.network.layers
        if count not in self.rooms:
            if any(layer.norm for layer in layers):
                require_several(count)
            self.rooms[count] = Room(self.network, count)
            compile_all(self._launches(batch, self.rooms[count], count), self.rates.device)
        room = self.rooms[count]
        self._take(batch, room)()
        torch.bmm(layers[0].filters, room.images.mT, out=room.responses[0][:, :, :count])
        for number, layer in enumerate(layers):
            self._forward(number, layer, room, count)()
        self._classify(room, count)()
        for number, layer in reversed(list(enumerate(layers))):
            self._backward(number, layer, room, count)()
            if number:
                self._step_hidden(number, layer, room)()
        torch.bmm(room.left[:, :, :count], room.images, out=room.gradient)
        self._step_first(room)()

    def _launches(self, batch: Batch, room: Room, count: int) -> list[Launch]:
        """One of every kind in a step."""
        first, *hidden = enumerate(self.network.layers)
        kinds = [self._take(batch, room), self._classify(room, count), self._step_first(room)]
        kinds += [make(*first, room, count) for make in (self._forward, self._backward)]
        for number, layer in hidden[:1]:
            kinds += [self._forward(number, layer, room, count), self._step_hidden(number, layer, room)]
        return kinds

    def _take(self, batch: Batch, room: Room) -> Launch:
        data, (runs, count, pixels) = self.group.images.data, room.images.shape
        arguments = (
            data.train_images, data.train_labels, batch.order, batch.position, room.images, room.targets,
            batch.order.shape[1], count, pixels,
        )  # fmt: skip
        return Launch(self.steps.take, (runs, count), arguments, {"PIXELS": _tile(pixels)})

    def _forward(self, number: int, layer: Layer, room: Room, count: int) -> Launch:
        norm, options = self._norm(layer)
        runs, pairs, padded = room.pooled[0].shape
        part = max(SMALLEST_TILE, pairs // 2)
        arguments = (
            room.pooled[number - 1], layer.filters, room.responses[number], room.pooled[number],
            norm.gamma, norm.beta, norm.mean, norm.variance, norm.batches, count, norm.eps, norm.momentum,
        )  # fmt: skip
        sizes = {"PAIRS": pairs, "PART": part, "INPUTS": pairs, "B": padded, "SOME": room.some}
        options |= {"FIRST": number == 0, **sizes}
        return Launch(self.layers.forward, (runs, pairs // part), arguments, options)

    def _classify(self, room: Room, count: int) -> Launch:
        (runs, pairs, padded), tally = room.pooled[0].shape, self.group.tally
        classes = self.network.classifier.shape[1]
        arguments = (
            room.pooled[-1], self.network.classifier, room.targets, room.errors, room.changes[-1],
            self.rates, self.columns, tally.loss, tally.wrong, classes, count,
        )  # fmt: skip
        sizes = {"PAIRS": pairs, "CLASSES": _tile(classes), "B": padded, "SOME": room.some}
        return Launch(self.steps.classify, (runs,), arguments, sizes)

    def _backward(self, number: int, layer: Layer, room: Room, count: int) -> Launch:
        norm, options = self._norm(layer)
        runs, pairs, padded = room.pooled[0].shape
        arguments = (
            room.responses[number], room.changes[number], room.left, norm.gamma, norm.beta, self.rates,
            count, norm.eps,
        )  # fmt: skip
        options |= {"PAIRS": pairs, "PART": SMALLEST_TILE, "B": padded}
        return Launch(self.layers.backward, (runs, pairs // SMALLEST_TILE), arguments, options)

    def _step_hidden(self, number: int, layer: Layer, room: Room) -> Launch:
        runs, pairs, padded = room.pooled[0].shape
        arguments = (
            room.pooled[number - 1], layer.filters, room.left, room.changes[number - 1],
            self.rates, self.rows,
        )  # fmt: skip
        sizes = {"FILTERS": 2 * pairs, "INPUTS": pairs, "B": padded, "SOME": room.some}
        return Launch(self.layers.step_hidden, (runs,), arguments, {**sizes, "num_warps": 8})

    def _step_first(self, room: Room) -> Launch:
        filters = self.network.layers[0].filters
        runs, rows, pixels = filters.shape
        arguments = filters, room.gradient, self.rates, self.rows, rows, pixels
        sizes = {"ROWS": ROWS, "INPUTS": _tile(pixels)}
        return Launch(self.steps.step_rows, (runs, rows // ROWS), arguments, sizes)

    def _norm(self, layer: Layer) -> tuple[Norm, dict[str, Any]]:
        """Normalization of a layer; where there is none, something to point at."""
        if layer.norm:
            return layer.norm, {"NORMED": True}
        return Norm(*[self.rates] * 5, eps=0.0, momentum=0.0), {"NORMED": False}


def _tile(size: int) -> int:
    """The next power of two, as large as Triton needs it."""
    return max(SMALLEST_TILE, 1 << (size - 1).bit_length())
