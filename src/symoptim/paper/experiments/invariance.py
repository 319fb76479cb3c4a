"""One network, two scalings of its weights: does an update train them alike?

Both start from the same function and see the same batches, in float64. Plain SGD trains the two scalings
differently; the updates of the paper do not see the scaling, and their loss curves agree to rounding.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from symoptim.ensemble.ensemble import Ensemble
from symoptim.ensemble.images import Split
from symoptim.ensemble.run import Constant, FixedEpochs, Run
from symoptim.errors import OptionError
from symoptim.models.pairwise import PairwiseNetwork, arch1, arch2
from symoptim.paper.records.pairs import Pair
from symoptim.support.seeds import derive_seed

# UN fixes one of Arch1's scalings instead of being invariant to them, so it has no panel there.
PANELS: dict[str, tuple[str, ...]] = {"arch1": ("b-sgd", "sm"), "arch2": ("b-sgd", "sm", "un")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescaling:
    """The experiment: scales are log-uniform between 1/spread and spread, and the rate is constant.

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
        if self.epochs < 1:
            raise OptionError(f"epochs must be at least 1, got {self.epochs}")


def train_pairs(rescaling: Rescaling, data: Split, device: torch.device) -> Iterator[list[Pair]]:
    """Train every panel from both scalings.

    Args:
        rescaling: the experiment.
        data: images and labels; one sixth of the training images are left aside.
        device: where to train.

    Yields:
        The curves so far, after every epoch.
    """
    exact = Split(*(t.double() if t.is_floating_point() else t for t in data))
    done: list[Pair] = []
    now: list[Pair] = []
    for architecture, updates in PANELS.items():
        runs = {update: _run(rescaling, update, len(data.train_labels)) for update in updates}
        pair = [
            Ensemble(runs, factory, exact, batch=100, device=device, test=False)
            for factory in _networks(rescaling, architecture, data.train_images.shape[1])
        ]
        for _ in range(rescaling.epochs):
            for ensemble in pair:
                ensemble.train_epoch()
            now = [Pair(architecture, update, *(_losses(e, update) for e in pair)) for update in updates]
            yield done + now
        done += now


def _losses(ensemble: Ensemble, update: str) -> tuple[float, ...]:
    return tuple(epoch.loss for epoch in ensemble.histories[update])


def _run(rescaling: Rescaling, update: str, images: int) -> Run:
    return Run(
        update=update,
        rate=rescaling.rate,
        schedule=Constant(),
        stopping=FixedEpochs(maximum=rescaling.epochs),
        seed=derive_seed(rescaling.seed, "invariance"),
        train=images - images // 6,
        validation=images // 6,
    )


def _networks(
    rescaling: Rescaling, architecture: str, inputs: int
) -> tuple[Callable[[], PairwiseNetwork], Callable[[], PairwiseNetwork]]:
    """Factories of the balanced network and of the rescaled one."""

    def balanced() -> PairwiseNetwork:
        if architecture == "arch1":
            return arch1(rescaling.depth, inputs=inputs).double()
        # An eps too small to be felt: batch normalization hides a filter's scale only as far as it is.
        return arch2(rescaling.depth, inputs=inputs, eps=1e-30).double()

    def rescaled() -> PairwiseNetwork:
        model = balanced()
        seed = derive_seed(rescaling.seed, "scales") % 2**31
        return model.rescale_(model.random_scales(seed=seed, low=1 / rescaling.spread, high=rescaling.spread))

    return balanced, rescaled
