"""Epochs of one network: they are what a plain loop does, and what is counted is what is predicted."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

import symoptim
from symoptim.errors import OptionError
from symoptim.paper.data.classes import CLASSES, VOID
from symoptim.paper.data.scenes import Scenes, SceneSplit
from symoptim.paper.segnet.augment import augment, chances
from symoptim.paper.segnet.labels import class_weights
from symoptim.paper.segnet.runs import SceneRun
from symoptim.paper.segnet.trainer import SceneTrainer
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from symoptim.support.seeds import derive_seed, permutations, seeded
from tests.support.small_scenes import EVERYTHING, a_scene_run, small_scenes, small_segnet


def groups(model: nn.Module) -> list[dict[str, Any]]:
    return symoptim.param_groups(model, overrides={"classifier": "plain"})


def decayed(whole: Iterable[dict[str, Any]], decay: float) -> list[dict[str, Any]]:
    """The same groups: what has two or more axes with decay, all else in groups of its own without."""
    parts: list[dict[str, Any]] = []
    for group in whole:
        for is_weight in (True, False):
            kept = [k for k, parameter in enumerate(group["params"]) if (parameter.ndim > 1) is is_weight]
            lists = {name: [group[name][k] for k in kept] for name in group if name.startswith("param")}
            parts.append({**group, **lists, "weight_decay": decay * is_weight})
    return [part for part in parts if part["params"]]


def everything(model: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(model.parameters())}]


OPTIMIZERS: dict[str, Callable[[nn.Module, Tensor], Optimizer]] = {
    "un": lambda model, lr: symoptim.UnitNormSGD(groups(model), lr=lr, normalize=True),
    "un-momentum": lambda model, lr: symoptim.UnitNormSGD(groups(model), lr=lr, momentum=0.9, normalize=True),
    "sm": lambda model, lr: symoptim.ScaledSGD(groups(model), lr=lr),
    "sgd": lambda model, lr: SGD(decayed(everything(model), 5e-4), lr=lr, momentum=0.9),
    "sgd-plain": lambda model, lr: SGD(decayed(everything(model), 5e-4), lr=lr),
    "adamw": lambda model, lr: AdamW(decayed(everything(model), 0.05), lr=lr),
    "invariant-adamw": lambda model, lr: symoptim.invariant(AdamW, decayed(groups(model), 0.05), lr=lr),
}


def plain_loop(run: SceneRun, data: SceneSplit, rates: list[float]) -> tuple[list[float], nn.Module]:
    """Losses and weights of the run, trained the way a user would write it."""
    with seeded(derive_seed(run.seed, "weights")):
        model = small_segnet().to(memory_format=torch.channels_last)
    lr = torch.tensor(rates[0])
    optimizer = OPTIMIZERS[run.update](model, lr)
    weights = class_weights(data.train.labels, len(CLASSES), run.weighting)
    count, losses = len(data.train.names), []
    for epoch, rate in enumerate(rates, start=1):
        lr.fill_(rate)
        order = permutations([derive_seed(run.seed, "batches")], epoch, count)[0]
        batches = [items for items in order.split(run.batch) if len(items) == run.batch]
        total = 0.0
        for items in batches:
            chosen = chances(derive_seed(run.seed, "images"), epoch, items.tolist())
            images, labels = data.train.images[items].float(), data.train.labels[items]
            images, labels = augment(images, labels, run.augmentation, chosen)
            scores = model(images.contiguous(memory_format=torch.channels_last))
            loss = cross_entropy(scores, labels.long(), weights, ignore_index=VOID)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(batches))
    return losses, model


@pytest.mark.parametrize("update", SCENE_OPTIMIZERS)
def test_every_update_trains_as_its_optimizer_does_in_a_plain_loop(update: str) -> None:
    assert set(OPTIMIZERS) == set(SCENE_OPTIMIZERS)
    run, rates = a_scene_run(update, augmentation=EVERYTHING, weighting="median"), [0.02, 0.01]
    trainer = SceneTrainer(run, small_segnet, small_scenes())
    losses = [trainer.train_epoch(epoch, rate) for epoch, rate in enumerate(rates, start=1)]
    expected, model = plain_loop(run, small_scenes(), rates)
    assert losses == expected
    for (name, one), other in zip(trainer.model.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other), name


def orders(trainer: SceneTrainer, epochs: int) -> list[list[int]]:
    """Numbers of the images that are trained on, epoch by epoch."""
    seen: list[list[int]] = []
    trainer.step = lambda: seen[-1].extend(trainer.items.tolist())
    for epoch in range(1, epochs + 1):
        seen.append([])
        trainer.train_epoch(epoch, 0.1)
    return seen


def test_every_image_is_seen_at_most_once_per_epoch_and_others_are_left_over_each_time() -> None:
    seen = orders(SceneTrainer(a_scene_run(), small_segnet, small_scenes()), 6)
    assert all(len(order) == len(set(order)) == 12 for order in seen)  # 14 images, batches of 4
    left_over = {frozenset(range(14)) - set(order) for order in seen}
    assert len(left_over) > 3
    assert len({tuple(order) for order in seen}) == 6


def test_the_seed_decides_weights_order_and_what_is_done_to_images() -> None:
    one, same, other = (
        SceneTrainer(a_scene_run(seed=seed), small_segnet, small_scenes()) for seed in (0, 0, 1)
    )
    assert torch.equal(one.model.classifier.weight, same.model.classifier.weight)
    assert not torch.equal(one.model.classifier.weight, other.model.classifier.weight)
    first, again, second = (orders(trainer, 2) for trainer in (one, same, other))
    assert first == again != second
    assert torch.equal(one.chances, same.chances)
    assert not torch.equal(one.chances, other.chances)


def test_the_callers_generator_is_left_alone() -> None:
    expected = torch.rand(3)
    torch.manual_seed(0)
    SceneTrainer(a_scene_run(), small_segnet, small_scenes()).train_epoch(1, 0.1)
    assert torch.equal(torch.rand(3), expected)


def with_void(scenes: Scenes) -> Scenes:
    """The same scenes, the left third of every image without a class."""
    labels = scenes.labels.clone()
    labels[:, :, :8] = VOID
    return scenes._replace(labels=labels)


def pixel_by_pixel() -> nn.Module:
    """A network in which no pixel has to do with another."""
    return nn.Conv2d(3, len(CLASSES), 1)


@pytest.mark.parametrize(("columns", "matters"), [(slice(0, 8), False), (slice(8, 9), True)])
def test_pixels_without_a_class_have_no_part_in_training(columns: slice, matters: bool) -> None:
    train = with_void(small_scenes().train)
    images = train.images.clone()
    images[..., columns] = 255 - images[..., columns]
    found: list[tuple[float, Tensor]] = []
    for scenes in (train, train._replace(images=images)):
        run = a_scene_run("sgd", rate=1e-5, weighting="none")
        trainer = SceneTrainer(run, pixel_by_pixel, small_scenes()._replace(train=scenes))
        loss = trainer.train_epoch(1, 1e-5)
        found.append((loss, trainer.model.weight.detach()))
    (loss, weight), (changed_loss, changed_weight) = found
    assert (changed_loss != loss) is matters
    assert torch.equal(weight, changed_weight) is not matters


def test_confusion_counts_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symoptim.paper.segnet.trainer.IMAGES_AT_ONCE", 3)  # 5 images do not fit in
    scenes = with_void(small_scenes().validation)
    trainer = SceneTrainer(a_scene_run(), small_segnet, small_scenes())
    trainer.train_epoch(1, 0.1)
    found = trainer.confusion(scenes)
    predicted = torch.cat([trainer.predict(scenes.images[:3]), trainer.predict(scenes.images[3:])])
    assert predicted.dtype == torch.uint8
    assert predicted.shape == (5, 16, 24)
    counts = [[0] * len(CLASSES) for _ in CLASSES]
    for true, guess in zip(scenes.labels.flatten().tolist(), predicted.flatten().tolist(), strict=True):
        if true != VOID:
            counts[true][guess] += 1
    assert found == counts
    assert sum(map(sum, counts)) == 5 * 16 * 16


def test_predictions_are_those_of_the_network_in_evaluation_mode() -> None:
    trainer = SceneTrainer(a_scene_run(), small_segnet, small_scenes())
    trainer.train_epoch(1, 0.1)
    images = small_scenes().test.images
    found = trainer.predict(images)
    scores = trainer.model.eval()(images.float().contiguous(memory_format=torch.channels_last))
    assert torch.equal(found.long(), scores.argmax(dim=1))


def normalized_first() -> nn.Module:
    """A network whose first layer keeps statistics of the pixels themselves."""
    return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, len(CLASSES), 1))


def test_statistics_are_those_of_training_images_as_they_are_learnt_from() -> None:
    run, train = a_scene_run("sgd", augmentation=EVERYTHING), small_scenes().train
    trainer = SceneTrainer(run, normalized_first, small_scenes())
    trainer.train_epoch(1, 1e-3)
    trainer.reestimate()
    order = permutations([derive_seed(run.seed, "batches")], 0, 14)[0, :12]  # no epoch has the number 0
    chosen = chances(derive_seed(run.seed, "images"), 0, order.tolist())
    images, _ = augment(train.images[order].float(), train.labels[order], run.augmentation, chosen)
    expected = images.mean(dim=(0, 2, 3))
    torch.testing.assert_close(trainer.model[0].running_mean, expected, rtol=1e-5, atol=0)
    assert int(trainer.model[0].num_batches_tracked) == 3
    assert not torch.allclose(expected, train.images.float().mean(dim=(0, 2, 3)), rtol=1e-3)


def test_statistics_do_not_change_what_is_learnt() -> None:
    one, other = (SceneTrainer(a_scene_run(), small_segnet, small_scenes()) for _ in range(2))
    for epoch in (1, 2):
        assert one.train_epoch(epoch, 0.1) == other.train_epoch(epoch, 0.1)
        one.reestimate()
        one.confusion(small_scenes().validation)


@pytest.mark.parametrize("update", SCENE_OPTIMIZERS)
def test_after_loading_the_rate_still_changes_in_place(update: str) -> None:
    first, second = (SceneTrainer(a_scene_run(update), small_segnet, small_scenes()) for _ in range(2))
    first.train_epoch(1, 0.1)
    second.load_state_dict(first.state_dict())
    assert all(group["lr"] is second.rate for group in second.optimizer.param_groups)


def test_a_batch_that_cannot_be_filled_is_refused() -> None:
    SceneTrainer(a_scene_run(batch=14), small_segnet, small_scenes())
    with pytest.raises(OptionError, match="a batch of 15 needs as many training images, there are 14"):
        SceneTrainer(a_scene_run(batch=15), small_segnet, small_scenes())
