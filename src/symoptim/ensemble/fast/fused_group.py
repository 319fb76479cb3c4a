"""A group of the paper's networks whose step is a few launches: two large products, Triton for the rest.

:class:`.closed_form.ClosedFormNetwork` has the formulas, and is what tests compare with.
"""

from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from symoptim.ensemble.block_optimizers import BlockOptimizer, PureOptimizer
from symoptim.ensemble.fast.closed_form import ClosedFormNetwork, StackedLayer
from symoptim.ensemble.fast.hidden_layer import StackedNorm, require_variance
from symoptim.ensemble.images import Batch
from symoptim.ensemble.run_group import RunGroup
from symoptim.kernels.triton.warmup import Launch, compile_all
from symoptim.optim.fused_support import KINDS
from symoptim.updates.catalog import PLAIN, SCALED

SMALLEST_TILE = 16  # that Triton multiplies
ROWS = 4  # of the first layer that a program steps
LARGEST_TILE = 2**16  # entries; more than a program has registers for


class BatchBuffers:
    """Memory for batches of one size: images, labels, and what one layer computes for the next.

    Where examples come last they are padded to a tile, with zeros that stay.
    """

    def __init__(self, network: ClosedFormNetwork, count: int) -> None:
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
        """Positions that products go over at a time."""


def can_fuse(group: RunGroup, batch: int) -> bool:
    """Whether the kernels support the networks and updates of a group, in batches of that size."""
    network = group.network
    if not isinstance(network, ClosedFormNetwork) or find_spec("triton") is None:
        return False
    filters = network.layers[0].filters
    pairs = filters.shape[1] // 2
    supported = filters.dtype == torch.float32 and all(_kinds(optimizer) for optimizer in group.optimizers)
    largest = max(pairs * _tile(batch), ROWS * _tile(filters.shape[2]))
    return supported and pairs >= SMALLEST_TILE and pairs & (pairs - 1) == 0 and largest <= LARGEST_TILE


def _kinds(optimizer: BlockOptimizer) -> tuple[int, int] | None:
    """Numbers of the updates of rows and columns; None if the kernels do not support them."""
    if not isinstance(optimizer, PureOptimizer):
        return None
    rows, columns, plain = (optimizer.update.updates[name] for name in ("rows", "columns", "plain"))
    if rows not in KINDS or columns not in (PLAIN, SCALED) or plain != PLAIN:
        return None
    return KINDS[rows], KINDS[columns]


class FusedGroup:
    """A group that steps by kernels; see :func:`can_fuse`."""

    def __init__(self, group: RunGroup, rates: Tensor) -> None:
        """Step the runs of that group, at these rates ``(r,)``."""
        assert isinstance(group.network, ClosedFormNetwork)
        self.group = group
        self.network = group.network
        self.rates = rates
        kinds = [kind for o in group.optimizers for kind in [_kinds(o)] * len(o.block.rows) if kind]
        self.rows, self.columns = (
            torch.tensor(numbers, dtype=torch.int32, device=rates.device)
            for numbers in zip(*kinds, strict=True)
        )
        self.buffers: dict[int, BatchBuffers] = {}
        # Imported here: only CUDA machines have Triton.
        self.kernels = import_module("symoptim.ensemble.fast.triton_kernels")

    def measure(self, *, test: bool) -> None:
        """Count wrong answers."""
        self.group.measure(test=test)

    def step(self, batch: Batch) -> None:
        """One step of every run on its training images of a batch."""
        count, layers = len(batch.offsets), self.network.layers
        if count not in self.buffers:
            if any(layer.norm for layer in layers):
                require_variance(count)
            self.buffers[count] = BatchBuffers(self.network, count)
            compile_all(self._launches(batch, self.buffers[count], count), self.rates.device)
        buffers = self.buffers[count]
        self._take(batch, buffers)()
        torch.bmm(layers[0].filters, buffers.images.mT, out=buffers.responses[0][:, :, :count])
        for number, layer in enumerate(layers):
            self._forward(number, layer, buffers, count)()
        self._classify(buffers, count)()
        for number, layer in reversed(list(enumerate(layers))):
            self._backward(number, layer, buffers, count)()
            if number:
                self._step_hidden(number, layer, buffers)()
        torch.bmm(buffers.left[:, :, :count], buffers.images, out=buffers.gradient)
        self._step_first(buffers)()

    def _launches(self, batch: Batch, buffers: BatchBuffers, count: int) -> list[Launch]:
        """One launch of every kind in a step."""
        first, *hidden = enumerate(self.network.layers)
        kinds = [self._take(batch, buffers), self._classify(buffers, count), self._step_first(buffers)]
        kinds += [make(*first, buffers, count) for make in (self._forward, self._backward)]
        for number, layer in hidden[:1]:
            kinds += [self._forward(number, layer, buffers, count), self._step_hidden(number, layer, buffers)]
        return kinds

    def _take(self, batch: Batch, buffers: BatchBuffers) -> Launch:
        data, (runs, count, pixels) = self.group.images.data, buffers.images.shape
        arguments = (
            data.train_images, data.train_labels, batch.order, batch.position,
            buffers.images, buffers.targets, batch.order.shape[1], count, pixels,
        )  # fmt: skip
        return Launch(self.kernels.take, (runs, count), arguments, {"PIXELS": _tile(pixels)})

    def _forward(self, number: int, layer: StackedLayer, buffers: BatchBuffers, count: int) -> Launch:
        norm, options = self._norm(layer)
        runs, pairs, padded = buffers.pooled[0].shape
        part = max(SMALLEST_TILE, pairs // 2)
        arguments = (
            buffers.pooled[number - 1], layer.filters, buffers.responses[number], buffers.pooled[number],
            norm.gamma, norm.beta, norm.mean, norm.variance, norm.batches, count, norm.eps, norm.momentum,
        )  # fmt: skip
        sizes = {"PAIRS": pairs, "PART": part, "INPUTS": pairs, "B": padded, "SOME": buffers.some}
        options |= {"FIRST": number == 0, **sizes}
        return Launch(self.kernels.forward, (runs, pairs // part), arguments, options)

    def _classify(self, buffers: BatchBuffers, count: int) -> Launch:
        (runs, pairs, padded), totals = buffers.pooled[0].shape, self.group.totals
        classes = self.network.classifier.shape[1]
        arguments = (
            buffers.pooled[-1], self.network.classifier, buffers.targets, buffers.errors, buffers.changes[-1],
            self.rates, self.columns, totals.loss, totals.wrong, classes, count,
        )  # fmt: skip
        sizes = {"PAIRS": pairs, "CLASSES": _tile(classes), "B": padded, "SOME": buffers.some}
        return Launch(self.kernels.classify, (runs,), arguments, sizes)

    def _backward(self, number: int, layer: StackedLayer, buffers: BatchBuffers, count: int) -> Launch:
        norm, options = self._norm(layer)
        runs, pairs, padded = buffers.pooled[0].shape
        arguments = (
            buffers.responses[number], buffers.changes[number], buffers.left, norm.gamma, norm.beta,
            self.rates, count, norm.eps,
        )  # fmt: skip
        options |= {"PAIRS": pairs, "PART": SMALLEST_TILE, "B": padded}
        return Launch(self.kernels.backward, (runs, pairs // SMALLEST_TILE), arguments, options)

    def _step_hidden(self, number: int, layer: StackedLayer, buffers: BatchBuffers) -> Launch:
        runs, pairs, padded = buffers.pooled[0].shape
        arguments = (
            buffers.pooled[number - 1], layer.filters, buffers.left, buffers.changes[number - 1],
            self.rates, self.rows,
        )  # fmt: skip
        sizes = {"FILTERS": 2 * pairs, "INPUTS": pairs, "B": padded, "SOME": buffers.some}
        return Launch(self.kernels.step_hidden, (runs,), arguments, {**sizes, "num_warps": 8})

    def _step_first(self, buffers: BatchBuffers) -> Launch:
        filters = self.network.layers[0].filters
        runs, rows, pixels = filters.shape
        arguments = filters, buffers.gradient, self.rates, self.rows, rows, pixels
        sizes = {"ROWS": ROWS, "INPUTS": _tile(pixels)}
        return Launch(self.kernels.step_rows, (runs, rows // ROWS), arguments, sizes)

    def _norm(self, layer: StackedLayer) -> tuple[StackedNorm, dict[str, int]]:
        """Normalization of a layer; where there is none, any tensors, which are not read."""
        if layer.norm:
            return layer.norm, {"NORMED": True}
        return StackedNorm(*[self.rates] * 5, eps=0.0, momentum=0.0), {"NORMED": False}


def _tile(size: int) -> int:
    """The next power of two, and at least the smallest tile."""
    return max(SMALLEST_TILE, 1 << (size - 1).bit_length())
