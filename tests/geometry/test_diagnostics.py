import math
from collections.abc import Callable

import torch

from symoptim.geometry.diagnostics import Point, equivariance_residual
from symoptim.geometry.rescaling import Arch1Scales, Weights, act
from symoptim.models.pairwise import PairwiseNetwork
from symoptim.updates.catalog import PLAIN, SCALED, Update
from symoptim.updates.step import StepOptions, step
from tests.support.trajectories import batches, network


def one_step(update: Update, model: PairwiseNetwork) -> Callable[[Point], Point]:
    images, labels = next(batches())

    def stepped(point: Point) -> Point:
        leaves = [w.detach().requires_grad_() for w in point]
        names = [name for name, _ in model.named_parameters()]
        scores = torch.func.functional_call(model, dict(zip(names, leaves, strict=True)), images)
        loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
        gradients = torch.autograd.grad(loss, leaves)
        overs = [(-1,)] * (len(leaves) - 1) + [(-2,)]
        return [
            step(update, w.detach(), g, StepOptions(lr=1e-3), over=over).weights
            for w, g, over in zip(leaves, gradients, overs, strict=True)
        ]

    return stepped


def test_scaled_step_commutes_with_rescaling_and_a_plain_step_does_not() -> None:
    model = network(1, 3)
    scales = model.random_scales(seed=5)
    assert isinstance(scales, Arch1Scales)

    def rescale(point: Point) -> Point:
        moved = act(Weights(tuple(point[:-1]), point[-1]), scales)
        return [*moved.hidden, moved.classifier]

    point = [*model.weights().hidden, model.classifier.weight]
    assert equivariance_residual(one_step(SCALED, model), rescale, point) < 1e-13
    assert equivariance_residual(one_step(PLAIN, model), rescale, point) > 0.1


def test_a_residual_of_nan_is_seen_wherever_it_is() -> None:
    def broken(point: Point) -> Point:
        return [point[0], point[1] * torch.nan]

    point = [torch.ones(2), torch.ones(2)]
    assert math.isnan(equivariance_residual(broken, lambda x: x, point))
    assert equivariance_residual(lambda x: [0 * w for w in x], lambda x: x, point) == 0
