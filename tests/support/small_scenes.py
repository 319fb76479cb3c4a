"""Scenes, networks and runs small enough for tests of segmentation."""

import functools

from symoptim.ensemble.ensemble import Result
from symoptim.ensemble.run import Cosine, FixedEpochs, Schedule
from symoptim.models import SegNetBasic
from symoptim.paper.data.roads import draw_roads
from symoptim.paper.data.scenes import SceneSplit
from symoptim.paper.segnet.augment import Augmentation
from symoptim.paper.segnet.labels import Weighting
from symoptim.paper.segnet.runs import SceneRun
from symoptim.paper.segnet.training import SceneTraining
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS

EVERYTHING = Augmentation(zoom=(0.6, 1.2), flip=True, crop=(14, 20))


@functools.cache  # nobody writes to them
def small_scenes() -> SceneSplit:
    """Drawn scenes of 16 x 24 pixels: 14 for training, 5 for validation, 4 for testing."""
    return SceneSplit(*(draw_roads(n, height=16, width=24, seed=seed) for seed, n in enumerate((14, 5, 4))))


def a_scene_run(
    update: str = "un",
    *,
    rate: float | None = None,
    epochs: int = 3,
    schedule: Schedule | None = None,
    seed: int = 0,
    batch: int = 4,
    weighting: Weighting = "root",
    augmentation: Augmentation | None = None,
    measure_every: int = 1,
) -> SceneRun:
    """A run of three epochs along a cosine on images as they are, unless it is told otherwise."""
    return SceneRun(
        update=update,
        rate=rate or SCENE_OPTIMIZERS[update].rate,
        schedule=schedule or Cosine(epochs=epochs),
        stopping=FixedEpochs(maximum=epochs),
        seed=seed,
        batch=batch,
        weighting=weighting,
        augmentation=augmentation or Augmentation(),
        measure_every=measure_every,
    )


def small_segnet() -> SegNetBasic:
    """SegNet-Basic with four features."""
    return SegNetBasic(features=4)


def train(training: SceneTraining) -> list[Result]:
    """Train to the end; every epoch."""
    results: list[Result] = []
    while training.is_running:
        results += training.train_epoch().values()
    return results
