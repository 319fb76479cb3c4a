r"""The paper's networks forward and backward in closed form: few large products, and no autograd.

With x the inputs of a layer, h = W x its responses, and p its pooled features (:mod:`.hidden_layer`), the
gradient of h gives

    backward    dW = dh x',  dx = W' dh

Features come first and examples last, ``(r, o, b)``, so that pairs are neighboring rows and sums over a batch
run over contiguous memory. Axis letters: r run, s row of images that some runs share, o filter or feature,
i input, b example.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.ensemble.fast.factored_gradient import FactoredGradient, Gradient
from symoptim.ensemble.fast.hidden_layer import (
    HiddenPass,
    StackedNorm,
    evaluate_,
    hidden_pass_for,
    norm_of,
    pool,
)
from symoptim.ensemble.fast.sparse_images import SparseBatch
from symoptim.ensemble.run_group import BatchResult
from symoptim.ensemble.stacked_model import StackedModel
from symoptim.models import pairwise

FIRST_FILTERS = "hidden.0.filters.weight"
"""The parameter whose inputs are images."""


class StackedLayer(NamedTuple):
    """A hidden layer: the prefix of its parameters' names, filters ``(r, o, i)``, normalized or not."""

    name: str
    filters: Tensor
    norm: StackedNorm | None


def is_pairwise(network: nn.Module) -> bool:
    """Whether a network is one of the paper's, unchanged."""
    return (
        type(network) is pairwise.PairwiseNetwork
        and all(
            type(layer) is pairwise.HiddenLayer
            and _is_linear(layer.filters)
            and _is_known_norm(layer.norm)
            and type(layer.pool) is pairwise.PairwiseMax
            for layer in network.hidden
        )
        and _is_linear(network.classifier)
        and all(parameter.requires_grad for parameter in network.parameters())
    )


def _is_linear(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear and "bias" not in dict(layer.named_parameters())


def _is_known_norm(norm: nn.Module) -> bool:
    if type(norm) is nn.BatchNorm1d:
        return norm.affine and norm.track_running_stats and norm.momentum is not None
    return type(norm) is nn.Identity


class ClosedFormNetwork:
    """Stacked networks of the paper; see :func:`is_pairwise`."""

    def __init__(self, stack: StackedModel, runs: slice = slice(None), blocks: int = 1) -> None:
        """Serve those runs of a stack, for as long as its tensors stay.

        They are ``blocks`` of equally many runs; in every block, neighbors may share a row of images.
        """
        self.blocks = blocks
        network = cast("pairwise.PairwiseNetwork", stack.template)
        self.layers = [
            StackedLayer(
                f"hidden.{number}",
                stack.parameters[f"hidden.{number}.filters.weight"].detach()[runs],
                norm_of(stack, f"hidden.{number}.norm", layer.get_submodule("norm"), runs),
            )
            for number, layer in enumerate(network.hidden)
        ]
        self.classifier = stack.parameters["classifier.weight"].detach()[runs]
        self.hidden_pass = hidden_pass_for(self.classifier)

    @torch.no_grad()
    def train(self, images: Tensor | SparseBatch, labels: Tensor) -> BatchResult:
        """Pass a batch forward and backward."""
        labels = self._for_every_run(labels)
        x = images if isinstance(images, SparseBatch) else images.flatten(2)
        h = self._first_responses(x)
        passed: list[tuple[StackedLayer, HiddenPass, Tensor | SparseBatch, Tensor]] = []
        for layer in self.layers:
            if passed:
                pooled = passed[-1][1].pooled
                x, h = pooled.mT, torch.bmm(layer.filters, pooled)
            passed.append((layer, self.hidden_pass(layer.norm, h), x, h))
        features = passed[-1][1].pooled
        scores = torch.bmm(self.classifier, features)
        target = labels.unsqueeze(1)
        logarithms = torch.log_softmax(scores, dim=1)
        losses = logarithms.gather(1, target).neg_().squeeze(1)
        change = logarithms.exp_()  # the gradient of the scores: softmax less one at the label
        change.scatter_(1, target, change.gather(1, target).sub_(1))
        gradients: dict[str, Gradient] = {"classifier.weight": FactoredGradient(change, features.mT, scores)}
        weights = self.classifier
        for layer, hidden, x, h in reversed(passed):
            half = torch.baddbmm(hidden.pooled, weights.mT, change, beta=0, alpha=0.5)
            change, norm = hidden.back(half)
            gradients[f"{layer.name}.filters.weight"] = FactoredGradient(change, x, h)
            if norm:
                gradients[f"{layer.name}.norm.weight"], gradients[f"{layer.name}.norm.bias"] = norm
            weights = layer.filters
        return BatchResult(losses, _wrong(scores, labels), gradients)

    def _for_every_run(self, labels: Tensor) -> Tensor:
        """Labels ``(s, b)`` of batches, ``(r, b)`` by run."""
        blocks, (rows, count) = self.blocks, labels.shape
        runs_per_row = len(self.classifier) // (blocks * rows)
        return labels[None, :, None].expand(blocks, rows, runs_per_row, count).reshape(-1, count)

    def _first_responses(self, images: Tensor | SparseBatch) -> Tensor:
        """Responses ``(r, o, b)`` to batches ``(s, b, i)``, in the order that is fastest on CPUs."""
        if isinstance(images, SparseBatch):
            return images.responses(self.layers[0].filters, self.blocks)
        runs, filters, inputs = self.layers[0].filters.shape
        blocks = self.layers[0].filters.view(self.blocks, len(images), -1, inputs)
        found = torch.cat([torch.bmm(images, block.mT).mT for block in blocks])
        return found.view(runs, filters, -1)

    @torch.no_grad()
    def count_wrong(self, images: Tensor | SparseBatch, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong; images of all runs go through the first layer at once."""
        if isinstance(images, SparseBatch):
            responses = self._first_responses(images)
        elif labels.ndim == 1:
            responses = self.layers[0].filters @ images.flatten(1).mT
        else:
            responses = self._first_responses(images.flatten(2))
        if labels.ndim == 2:
            labels = self._for_every_run(labels)
        features = responses
        for layer in self.layers:
            if layer is not self.layers[0]:
                responses = torch.bmm(layer.filters, features)
            if layer.norm:
                evaluate_(layer.norm, responses)
            features = pool(responses)
        return _wrong(torch.bmm(self.classifier, features), labels)


def _wrong(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.max(dim=1).indices != labels).sum(dim=1)
