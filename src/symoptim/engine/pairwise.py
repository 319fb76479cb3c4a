r"""The paper's networks forward and back in closed form: few large products, nothing recorded.

With x the inputs of a layer, h = W x, and a = h, or h batch-normalized (:mod:`.batch_norm`):

    forward     p_j = max(a_2j, a_2j+1, 0)
    backward    da goes to the larger of the pair, in halves to equal ones, if p_j > 0
                dW = dh x',  dx = W' dh

Features come first and examples last, ``(r, o, b)``, so that pairs are neighboring rows and what is summed
over a batch lies side by side. Axis letters: r run, o filter or feature, i input, b example.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.engine.batch_norm import Norm, center, evaluate_, norm_of, to_responses_
from symoptim.engine.passes import Passed
from symoptim.engine.products import Gradient, Product
from symoptim.engine.stack import Stack
from symoptim.models.pairwise import HiddenLayer, PairwiseNetwork


class Layer(NamedTuple):
    """A hidden layer: filters ``(r, o, i)``, normalized or not, and the name their parameters begin with."""

    name: str
    filters: Tensor
    norm: Norm | None


class Seen(NamedTuple):
    """What the way back needs of a layer: x, h, c and sigma, which of a pair is larger, p."""

    inputs: Tensor
    responses: Tensor
    centered: Tensor
    scale: Tensor
    winner: Tensor
    pooled: Tensor


def is_pairwise(network: nn.Module) -> bool:
    """Whether a network is one of ours, as it was made."""
    return (
        type(network) is PairwiseNetwork
        and all(type(layer) is HiddenLayer and _is_known(layer.norm) for layer in network.hidden)
        and all(parameter.requires_grad for parameter in network.parameters())
    )


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

    @torch.no_grad()
    def train(self, images: Tensor, labels: Tensor) -> Passed:
        """Pass a batch forward and back."""
        labels = self._for_every_run(labels)
        responses, seen = self._first_responses(images.flatten(2)), list[Seen]()
        features = images.flatten(2).mT
        for layer in self.layers:
            if seen:
                responses = torch.bmm(layer.filters, features)
            seen.append(_forward(layer.norm, features, responses))
            features = seen[-1].pooled
        scores = torch.bmm(self.classifier, features)
        target = labels.unsqueeze(1)
        logarithms = torch.log_softmax(scores, dim=1)
        losses = logarithms.gather(1, target).neg_().squeeze(1)
        change = logarithms.exp_()
        change.scatter_(1, target, change.gather(1, target).sub_(1))
        gradients: dict[str, Gradient] = {"classifier.weight": Product(change, features.mT, scores)}
        weights = self.classifier
        for layer, met in zip(reversed(self.layers), reversed(seen), strict=True):
            half = torch.baddbmm(met.pooled, weights.mT, change, beta=0, alpha=0.5)
            change = _backward(layer, met, half, gradients)
            weights = layer.filters
        return Passed(losses, _misses(scores, labels), gradients)

    def _for_every_run(self, labels: Tensor) -> Tensor:
        """Labels ``(s, b)`` of batches, ``(r, b)`` by run."""
        blocks, (sources, count) = self.blocks, labels.shape
        alike = len(self.classifier) // (blocks * sources)
        return labels[None, :, None].expand(blocks, sources, alike, count).reshape(-1, count)

    def _first_responses(self, images: Tensor) -> Tensor:
        """Responses ``(r, o, b)`` to batches ``(s, b, i)``, in the order that is fastest on CPUs."""
        runs, filters, inputs = self.layers[0].filters.shape
        blocks = self.layers[0].filters.view(self.blocks, len(images), -1, inputs)
        found = torch.cat([torch.bmm(images, block.mT).mT for block in blocks])
        return found.view(runs, filters, -1)

    @torch.no_grad()
    def wrong(self, images: Tensor, labels: Tensor) -> Tensor:
        """Number of images every run gets wrong; images of all runs go through the first layer at once."""
        if labels.ndim == 1:
            responses = self.layers[0].filters @ images.flatten(1).mT
        else:
            labels, responses = self._for_every_run(labels), self._first_responses(images.flatten(2))
        features = responses
        for layer in self.layers:
            if layer is not self.layers[0]:
                responses = torch.bmm(layer.filters, features)
            if layer.norm:
                evaluate_(layer.norm, responses)
            features = _pool(responses)
        return _misses(torch.bmm(self.classifier, features), labels)


def _pairs(features: Tensor) -> tuple[Tensor, Tensor]:
    """The first features of all pairs, and the second ones."""
    runs, count, examples = features.shape
    pairs = features.view(runs, count // 2, 2, examples)
    return pairs[:, :, 0], pairs[:, :, 1]


def _pool(features: Tensor) -> Tensor:
    """ReLU and the larger of every pair."""
    return torch.maximum(*_pairs(features)).clamp_(min=0)


def _forward(norm: Norm | None, inputs: Tensor, responses: Tensor) -> Seen:
    features = centered = scale = responses
    if norm:
        centered, scale = center(norm, responses)
        features = (centered * (norm.gamma * scale)).add_(norm.beta)
    even, odd = _pairs(features)
    winner = (even - odd).sign_()  # 1 or -1; 0 where both are equal
    return Seen(inputs, responses, centered, scale, winner, _pool(features))


def _backward(layer: Layer, seen: Seen, half: Tensor, gradients: dict[str, Gradient]) -> Tensor:
    """From half the gradient of pooled features to that of responses; the layer's own are put down."""
    half = half.mul_(seen.pooled.sign())
    signed = half * seen.winner
    change = torch.empty_like(seen.responses)
    for place, operation in zip(_pairs(change), (torch.add, torch.sub), strict=True):
        operation(half, signed, out=place)
    if layer.norm:
        gamma, beta = to_responses_(layer.norm, seen.centered, seen.scale, change)
        gradients |= {f"{layer.name}.norm.weight": gamma, f"{layer.name}.norm.bias": beta}
    gradients[f"{layer.name}.filters.weight"] = Product(change, seen.inputs.mT, seen.responses)
    return change


def _misses(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.max(dim=1).indices != labels).sum(dim=1)
