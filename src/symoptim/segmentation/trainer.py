"""One network on scenes: an epoch of steps, and confusion matrices of whole sets.

Tensors have their channels last, which makes convolutions a third to a half faster (CPU and CUDA). On CUDA
the network computes in bfloat16 where that is safe, its weights stay float32; on the CPU all is float32.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from symoptim.data.classes import CLASSES, VOID
from symoptim.data.scenes import Scenes, SceneSplit
from symoptim.engine.numerics import derive_seed, seeded
from symoptim.engine.shuffle import permutations
from symoptim.errors import OptionError
from symoptim.segmentation.augment import augment, chances
from symoptim.segmentation.batch_norm import reestimate_
from symoptim.segmentation.confusion import confusion
from symoptim.segmentation.run import SceneRun
from symoptim.segmentation.updates import SCENE_UPDATES, set_rate
from symoptim.segmentation.weights import class_weights

IMAGES_AT_ONCE = 16  # when nothing is learnt from them


class SceneTrainer:
    """A network with its optimizer, on the device where the scenes are."""

    def __init__(
        self, run: SceneRun, factory: Callable[[], nn.Module], data: SceneSplit, *, compiled: bool = False
    ) -> None:
        """Start from the weights the run's seed gives.

        Args:
            run: what to do.
            factory: makes the network, which takes pixels from 0 to 255.
            data: scenes, on the device to train on.
            compiled: whether steps go through ``torch.compile``.

        Raises:
            OptionError: there are fewer training images than a batch takes.
        """
        count = len(data.train.names)
        if count < run.batch:
            raise OptionError(f"a batch of {run.batch} needs as many training images, there are {count}")
        self.run = run
        self.data = data
        self.device = data.train.images.device
        with seeded(derive_seed(run.seed, "weights")):
            model = factory()  # on the CPU: a seed means the same weights on every device
        moved = cast("Any", model).to(
            self.device, memory_format=torch.channels_last
        )  # torch's stubs lack the latter
        self.model: nn.Module = moved
        self.in_steps: Callable[[Tensor], Tensor] = cast("Any", torch).compile(moved) if compiled else moved
        self.optimizer = SCENE_UPDATES[run.update].make(self.model, run.rate)
        self.weights = class_weights(data.train.labels, len(CLASSES), run.weighting).to(self.device)

    def train_epoch(self, epoch: int, rate: float) -> float:
        """Step through the training images once, in the order of that epoch; the mean loss of its batches."""
        set_rate(self.optimizer, rate)
        self.model.train()
        seed = derive_seed(self.run.seed, "batches")
        (order,) = permutations([seed], epoch, len(self.data.train.names))
        losses = [
            self._step(items, epoch)
            for items in torch.split(order, self.run.batch)
            if len(items) == self.run.batch
        ]
        return float(torch.stack(losses).double().mean())

    def _step(self, items: Tensor, epoch: int) -> Tensor:
        """One step on these training images; their loss, not waited for."""
        run, where = self.run, items.to(self.device)
        chance = chances(derive_seed(run.seed, "images"), epoch, [int(item) for item in items], self.device)
        images, labels = augment(
            self.data.train.images[where].float(), self.data.train.labels[where], run.augmentation, chance
        )
        loss = cross_entropy(
            self._scores(self.in_steps, images), labels.long(), self.weights, ignore_index=VOID
        )
        self.optimizer.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.optimizer.step()
        return loss.detach()

    def _scores(self, network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return network(images.contiguous(memory_format=torch.channels_last)).float()

    def reestimate(self) -> None:
        """Measure the statistics of batch normalization anew, on the training images as they are."""
        passes = (images for images, _ in _batches(self.data.train))
        reestimate_(self.model, passes, call=lambda images: self._scores(self.model, images))

    @torch.no_grad()
    def confusion(self, scenes: Scenes) -> list[list[int]]:
        """Pixels of a set by true and predicted class."""
        self.model.eval()
        classes = len(CLASSES)
        counts = torch.zeros(classes, classes, dtype=torch.int64, device=self.device)
        for images, labels in _batches(scenes):
            predicted = self._scores(self.model, images).argmax(dim=1)
            counts += confusion(labels, predicted, classes, void=VOID)
        return [[int(count) for count in row] for row in counts.cpu()]

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Classes ``(b, h, w)``, unsigned bytes on the CPU, of images ``(b, 3, h, w)``."""
        self.model.eval()
        return self._scores(self.model, images.float()).argmax(dim=1).to(torch.uint8).cpu()

    def state_dict(self) -> dict[str, Any]:
        """All that changes while training."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` saved, of the same run."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def _batches(scenes: Scenes) -> Iterator[tuple[Tensor, Tensor]]:
    """Images, floating point, and labels, in order."""
    for start in range(0, len(scenes.names), IMAGES_AT_ONCE):
        part = slice(start, start + IMAGES_AT_ONCE)
        yield scenes.images[part].float(), scenes.labels[part]
