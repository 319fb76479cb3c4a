"""Whole runs on scenes: what is measured when, how they end, and that a stop on the way changes nothing."""

import io
import math

import pytest
import torch
from torch import Tensor, nn

from symoptim.ensemble.run import Bold, Constant, Cosine, Exponential, Schedule
from symoptim.errors import OptionError
from symoptim.models.segnet import ConvolutionBlock
from symoptim.paper.data.classes import CLASSES
from symoptim.paper.records.scores import scores_of
from symoptim.paper.segnet.pictures import label_png
from symoptim.paper.segnet.run import SceneRun
from symoptim.paper.segnet.training import SceneTraining
from symoptim.paper.segnet.updates import SCENE_UPDATES
from tests.support.small_scenes import EVERYTHING, a_scene_run, small_scenes, small_segnet, train


def training_of(run: SceneRun) -> SceneTraining:
    return SceneTraining("one", run, small_segnet, small_scenes(), examples=small_scenes().test.names[1:3])


def losses(training: SceneTraining) -> list[float]:
    return [epoch.loss for epoch in training.history]


FASTER = {"adamw": 1e-3, "invariant-adamw": 1e-3}  # theirs are for more steps than there are here


@pytest.mark.parametrize("update", SCENE_UPDATES)
def test_the_loss_falls(update: str) -> None:
    training = training_of(a_scene_run(update, rate=FASTER.get(update), epochs=4))
    train(training)
    assert losses(training) == sorted(losses(training), reverse=True)
    assert losses(training)[-1] < losses(training)[0] - 0.02


def everything(training: SceneTraining) -> str:
    """Digits of all epochs: NaN is not equal to itself."""
    return repr(training.history)


def require_equal_weights(one: SceneTraining, other: SceneTraining) -> None:
    for name, value in one.trainer.model.state_dict().items():
        assert torch.equal(other.trainer.model.state_dict()[name], value), name


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    first, again, other = (training_of(a_scene_run(seed=seed, augmentation=EVERYTHING)) for seed in (3, 3, 4))
    one, two, three = (train(training)[-1].findings for training in (first, again, other))
    assert everything(first) == everything(again) != everything(other)
    assert one is not None
    assert two is not None
    assert three is not None
    assert one[1:] == two[1:]  # all but the seconds
    assert one.confusions != three.confusions
    require_equal_weights(first, again)


@pytest.mark.parametrize(("every", "measured"), [(1, {1, 2, 3, 4, 5}), (2, {2, 4, 5}), (3, {3, 5}), (9, {5})])
def test_scores_are_measured_now_and_then_and_after_the_last_epoch(every: int, measured: set[int]) -> None:
    training = training_of(a_scene_run(epochs=5, measure_every=every))
    train(training)
    assert {e.number for e in training.history if not math.isnan(e.validation_error)} == measured
    assert {e.number for e in training.history if not math.isnan(e.test_error)} == {5}
    assert {e.number for e in training.history if not math.isnan(e.train_error)} == {5}


def test_how_often_is_measured_makes_no_difference_to_training() -> None:
    often, seldom = (training_of(a_scene_run(epochs=4, measure_every=every)) for every in (1, 4))
    train(often)
    train(seldom)
    assert losses(often) == losses(seldom)
    assert often.history[-1] == seldom.history[-1]
    require_equal_weights(often, seldom)


def test_errors_are_what_is_missing_to_a_mean_intersection_over_union_of_one() -> None:
    training = training_of(a_scene_run())
    *_, last = train(training)
    assert last.findings is not None
    for part, error in zip(("train", "validation", "test"), last.epoch[3:], strict=True):
        scenes = getattr(small_scenes(), part)
        matrix = last.findings.confusions[part]
        assert error == 1 - scores_of(matrix).mean_iou
        assert sum(map(sum, matrix)) == scenes.labels.numel()
        truth = torch.bincount(scenes.labels.flatten().long(), minlength=len(CLASSES))
        assert [sum(row) for row in matrix] == truth.tolist()


def test_the_findings_are_those_of_the_network_at_the_end() -> None:
    training = training_of(a_scene_run())
    *others, last = train(training)
    assert all(result.findings is None and result.outcome is None for result in others)
    assert last.outcome == ("all epochs done", False)
    findings, test = last.findings, small_scenes().test
    assert findings is not None
    assert findings.seconds == training.seconds > 0
    assert list(findings.pictures) == list(test.names[1:3])
    for name, picture in findings.pictures.items():
        place = test.names.index(name)
        assert picture == label_png(training.trainer.predict(test.images[place : place + 1])[0])
    assert findings.confusions["test"] == training.trainer.confusion(test)


def test_there_is_no_epoch_after_the_last() -> None:
    training = training_of(a_scene_run(epochs=1))
    train(training)
    with pytest.raises(OptionError, match="run 'one' has ended: there is nothing left to train"):
        training.train_epoch()
    taken_up = training_of(a_scene_run(epochs=1))
    taken_up.load_state_dict(training.state_dict())
    assert not taken_up.is_running


def test_a_run_whose_loss_is_not_finite_ends_at_once_and_without_scores() -> None:
    training = training_of(a_scene_run("sgd", rate=1e30, epochs=5))
    (only,) = train(training)
    assert only.outcome == ("the loss is not finite", True)
    assert not math.isfinite(only.epoch.loss)
    assert all(math.isnan(error) for error in only.epoch[3:])
    assert only.findings is not None
    assert (only.findings.confusions, only.findings.pictures) == ({}, {})


class Witness(nn.Module):
    """A network that notes the statistics of the pixels it goes by when it is evaluated."""

    def __init__(self, seen: list[Tensor]) -> None:
        super().__init__()
        self.norm, self.classifier, self.seen = nn.BatchNorm2d(3), nn.Conv2d(3, len(CLASSES), 1), seen

    def forward(self, images: Tensor) -> Tensor:
        if not self.training and self.norm.running_mean is not None:
            self.seen.append(self.norm.running_mean.clone())
        return self.classifier(self.norm(images))


def test_statistics_are_measured_anew_before_anything_is_evaluated() -> None:
    seen: list[Tensor] = []
    run = a_scene_run("sgd", epochs=2, batch=7)
    training = SceneTraining("one", run, lambda: Witness(seen), small_scenes(), examples=["road_2_0"])
    train(training)
    assert len(seen) == 1 + 3 + 1  # validation; all three sets; the example
    expected = small_scenes().train.images.float().mean(dim=(0, 2, 3))
    for mean in seen:
        torch.testing.assert_close(mean, expected, rtol=1e-5, atol=0)


SCHEDULES: dict[Schedule, list[float]] = {
    Constant(): [0.1, 0.1, 0.1, 0.1],
    Cosine(epochs=4): [0.1, 0.05 + 0.05 * math.sqrt(0.5), 0.05, 0.05 - 0.05 * math.sqrt(0.5)],
    Exponential(decay=0.5): [0.1, 0.05, 0.025, 0.0125],
    Bold(grow=1.5): [0.1, 0.1, 0.15, 0.225],
}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_rates_follow_the_schedule(schedule: Schedule) -> None:
    training = training_of(a_scene_run(rate=0.1, epochs=4, schedule=schedule))
    used: list[float] = []
    while training.is_running:
        training.train_epoch()
        used.append(float(training.trainer.optimizer.param_groups[0]["lr"]))
    assert [epoch.rate for epoch in training.history] == pytest.approx(SCHEDULES[schedule])
    assert used == pytest.approx(SCHEDULES[schedule])


RESUMED = [
    *(pytest.param(update, Cosine(epochs=4), 2, id=update) for update in SCENE_UPDATES),
    *(pytest.param("un-momentum", schedule, 2, id=str(schedule)) for schedule in SCHEDULES),
    *(pytest.param("un-momentum", Bold(), stop, id=f"after {stop}") for stop in (1, 3)),
]


@pytest.mark.parametrize(("update", "schedule", "stop"), RESUMED)
def test_training_taken_up_from_a_saved_state_goes_on_bit_for_bit(
    update: str, schedule: Schedule, stop: int
) -> None:
    run = a_scene_run(update, epochs=4, schedule=schedule, augmentation=EVERYTHING, measure_every=2)
    straight, first, second = (training_of(run) for _ in range(3))
    *_, expected = train(straight)
    for _ in range(stop):
        first.train_epoch()
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    saved.seek(0)
    second.load_state_dict(torch.load(saved, weights_only=True))
    assert (second.epochs, second.seconds) == (stop, first.seconds)
    results = train(second)
    assert len(results) == 4 - stop
    assert everything(second) == everything(straight)
    assert results[-1].findings is not None
    assert expected.findings is not None
    assert results[-1].findings[1:] == expected.findings[1:]
    require_equal_weights(second, straight)


class Double(nn.Module):
    """A network in float64, its batch normalization with an eps too small to be felt."""

    def __init__(self, *, rescaled: bool) -> None:
        super().__init__()
        self.network = small_segnet().double()
        generator = torch.Generator().manual_seed(1)
        for block in self.network.modules():
            if isinstance(block, nn.BatchNorm2d):
                block.eps = 1e-30
            elif isinstance(block, ConvolutionBlock) and rescaled:
                weight = block[0].weight.data
                scales = 10 ** (4 * torch.rand(len(weight), 1, 1, 1, generator=generator).double() - 2)
                weight.mul_(scales)  # between 1/100 and 100

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images.double())


def histories(update: str, rate: float) -> list[list[float]]:
    """Losses of the network as it is, and with every filter before batch normalization rescaled."""
    found: list[list[float]] = []
    for rescaled in (False, True):
        run = a_scene_run(update, rate=rate, epochs=4, augmentation=EVERYTHING)
        training = SceneTraining("one", run, lambda r=rescaled: Double(rescaled=r), small_scenes())
        train(training)
        found.append(losses(training))
    return found


@pytest.mark.parametrize("update", ["un", "un-momentum", "sm", "invariant-adamw"])
def test_rescaled_filters_leave_the_whole_run_as_it_is(update: str) -> None:
    straight, moved = histories(update, 0.02)
    assert moved == pytest.approx(straight, rel=1e-9)


@pytest.mark.parametrize("update", ["sgd", "sgd-plain", "adamw"])
def test_with_updates_that_see_the_scaling_the_run_is_another(update: str) -> None:
    straight, moved = histories(update, 0.02)
    assert moved[-1] != pytest.approx(straight[-1], rel=1e-3)


def test_where_every_filter_is_normalized_both_of_the_papers_updates_take_the_same_way() -> None:
    assert histories("un", 0.1)[0] == pytest.approx(histories("sm", 0.1)[0], rel=1e-9)
