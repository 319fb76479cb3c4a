r"""The paper's networks forward and back in closed form: few large products, nothing recorded.

With x the inputs of a layer, h = W x, and a = h, or h batch-normalized (:mod:`.batch_norm`):

    forward     p_j = max(a_2j, a_2j+1, 0)
    backward    da goes to the larger of the pair, in halves to equal ones, if p_j > 0
                dW = dh x',  dx = W' dh

Features come first and examples last, ``(r, o, b)``, so that pairs are neighboring rows and what is summed
over a batch lies side by side. Axis letters: r run, o filter or feature, i input, b example.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.ensemble.batch_norm import Norm, evaluate_, norm_of
from symoptim.ensemble.hidden import Hidden, hidden_for, pool
from symoptim.ensemble.ink import Drawn
from symoptim.ensemble.passes import Passed
from symoptim.ensemble.products import Gradient, Product
from symoptim.ensemble.stack import Stack
from symoptim.models.pairwise import HiddenLayer, PairwiseMax, PairwiseNetwork

FIRST_FILTERS = "hidden.0.filters.weight"
"""The parameter that is shown images."""


class Layer(NamedTuple):
    """A hidden layer: filters ``(r, o, i)``, normalized or not, and the name their parameters begin with."""

    name: str
    filters: Tensor
    norm: Norm | None


def is_pairwise(network: nn.Module) -> bool:
    """Whether a network is one of ours, as it was made."""
    return (
        type(network) is PairwiseNetwork
        and all(type(layer) is HiddenLayer and _is_as_made(layer) for layer in network.hidden)
        and _is_linear(network.classifier)
        and all(parameter.requires_grad for parameter in network.parameters())
    )


def _is_as_made(layer: HiddenLayer) -> bool:
    return _is_linear(layer.filters) and _is_known(layer.norm) and type(layer.pool) is PairwiseMax


def _is_linear(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear and "bias" not in dict(layer.named_parameters())


def _is_known(norm: nn.Module) -> bool:
    if type(norm) is nn.BatchNorm1d:
        return norm.affine and norm.track_running_stats and norm.momentum is not None
    return type(norm) is nn.Identity


class Pairwise:
    """Stacked networks of the paper; see :func:`is_pairwise`."""

    def __init__(self, stack: Stack, runs: slice = slice(None), blocks: int = 1) -> None:
        """Serve those runs of a stack, for as long as its tensors stay.

        They are ``blocks`` of equally many runs; in every block, a batch may be for several neighbors.
        """
        self.blocks = blocks
        network = cast("PairwiseNetwork", stack.template)
        self.layers = [
            Layer(
                f"hidden.{number}",
                stack.parameters[f"hidden.{number}.filters.weight"].detach()[runs],
                norm_of(stack, f"hidden.{number}.norm", layer.get_submodule("norm"), runs),
            )
            for number, layer in enumerate(network.hidden)
        ]
        self.classifier = stack.parameters["classifier.weight"].detach()[runs]
        self.hidden = hidden_for(self.classifier)

    @torch.no_grad()
    def train(self, images: Tensor | Drawn, labels: Tensor) -> Passed:
        """Pass a batch forward and back."""
        labels = self._for_every_run(labels)
        first = images if isinstance(images, Drawn) else images.flatten(2)
        responses, passed, inputs = [self._first_responses(first)], list[Hidden](), [first]
        for layer in self.layers:
            if passed:
                responses.append(torch.bmm(layer.filters, passed[-1].pooled))
                inputs.append(passed[-1].pooled.mT)
            passed.append(self.hidden(layer.norm, responses[-1]))
        features = passed[-1].pooled
        scores = torch.bmm(self.classifier, features)
        target = labels.unsqueeze(1)
        logarithms = torch.log_softmax(scores, dim=1)
        losses = logarithms.gather(1, target).neg_().squeeze(1)
        change = logarithms.exp_()
        change.scatter_(1, target, change.gather(1, target).sub_(1))
        gradients: dict[str, Gradient] = {"classifier.weight": Product(change, features.mT, scores)}
        met = list(zip(self.layers, passed, inputs, responses, strict=True))
        return Passed(losses, _misses(scores, labels), gradients | self._back(met, change))

    def _back(
        self, met: Sequence[tuple[Layer, Hidden, Tensor | Drawn, Tensor]], change: Tensor
    ) -> dict[str, Gradient]:
        """Gradients of all layers ``met``, each with its inputs X' and responses, from that of the scores."""
        gradients: dict[str, Gradient] = {}
        weights = self.classifier
        for layer, passed, x, h in reversed(met):
            half = torch.baddbmm(passed.pooled, weights.mT, change, beta=0, alpha=0.5)
            change, norm = passed.back(half)
            gradients[f"{layer.name}.filters.weight"] = Product(change, x, h)
            if norm:
                names = (f"{layer.name}.norm.weight", f"{layer.name}.norm.bias")
                gradients |= dict(zip(names, norm, strict=True))
            weights = layer.filters
        return gradients

    def _for_every_run(self, labels: Tensor) -> Tensor:
        """Labels ``(s, b)`` of batches, ``(r, b)`` by run."""
        blocks, (sources, count) = self.blocks, labels.shape
        alike = len(self.classifier) // (blocks * sources)
        return labels[None, :, None].expand(blocks, sources, alike, count).reshape(-1, count)

    def _first_responses(self, images: Tensor | Drawn) -> Tensor:
        """Responses ``(r, o, b)`` to batches ``(s, b, i)``, in the order that is fastest on CPUs."""
        if isinstance(images, Drawn):
            return images.responses(self.layers[0].filters, self.blocks)
        runs, filters, inputs = self.layers[0].filters.shape
        blocks = self.layers[0].filters.view(self.blocks, len(images), -1, inputs)
        found = torch.cat([torch.bmm(images, block.mT).mT for block in blocks])
        return found.view(runs, filters, -1)

    @torch.no_grad()
    def wrong(self, images: Tensor | Drawn, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong; images of all runs go through the first layer at once."""
        if isinstance(images, Drawn):
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
        return _misses(torch.bmm(self.classifier, features), labels)


def _misses(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.max(dim=1).indices != labels).sum(dim=1)
