import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import NAdam, Optimizer

from symoptim.errors import OptionError
from symoptim.models.segnet import ConvolutionBlock, EncoderDecoder, SegNet
from symoptim.paper.choices import require_known
from symoptim.paper.segnet.images import Standardize
from symoptim.paper.segnet.training import SceneTraining
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS, SceneOptimizer
from tests.support.small_scenes import a_scene_run, small_scenes, small_segnet

INVARIANT = ["un", "un-momentum", "sm", "invariant-adamw"]


def filters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Weights that batch normalization follows."""
    for block in model.modules():
        if isinstance(block, ConvolutionBlock):
            yield block[0].weight


def take_steps(model: EncoderDecoder, optimizer: Optimizer, steps: int = 10) -> list[float]:
    """Losses on one batch, before each step on it."""
    images, labels = small_scenes().train.images[:4].float(), small_scenes().train.labels[:4].long()
    losses: list[float] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def norms(weight: nn.Parameter) -> torch.Tensor:
    return weight.detach().flatten(1).norm(dim=1)


@pytest.mark.parametrize("update", SCENE_OPTIMIZERS)
def test_every_update_lowers_the_loss_at_the_rate_it_is_registered_with(update: str) -> None:
    model = small_segnet()
    optimizer = SCENE_OPTIMIZERS[update].make(model, torch.tensor(SCENE_OPTIMIZERS[update].rate))
    losses = take_steps(model, optimizer)
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize("update", SCENE_OPTIMIZERS)
def test_a_rate_that_changes_in_place_is_the_rate_of_the_next_step(update: str) -> None:
    model, rate = small_segnet(), torch.tensor(0.01)
    other = copy.deepcopy(model)
    optimizer = SCENE_OPTIMIZERS[update].make(model, rate)
    rate.fill_(0.003)
    losses = take_steps(model, optimizer, 3)
    assert losses == take_steps(other, SCENE_OPTIMIZERS[update].make(other, torch.tensor(0.003)), 3)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("update", INVARIANT)
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "after other layers"])
def test_filters_before_batch_normalization_are_rows_and_all_else_is_plain(
    update: str, wrapped: bool
) -> None:
    model: nn.Module = SegNet(width=1 / 32)
    if wrapped:
        model = nn.Sequential(Standardize(small_scenes().train.images), model)
    groups = SCENE_OPTIMIZERS[update].make(model, torch.tensor(0.1)).param_groups
    members = {id(p): group["geometry"] for group in groups for p in group["params"]}
    rows = {id(weight) for weight in filters(model)}
    assert len(rows) == 25
    assert members == {id(p): "rows" if id(p) in rows else "plain" for p in model.parameters()}


@pytest.mark.parametrize("update", INVARIANT)
def test_groups_call_every_parameter_by_its_name(update: str) -> None:
    model = small_segnet()
    groups = SCENE_OPTIMIZERS[update].make(model, torch.tensor(0.1)).param_groups
    named = [pair for g in groups for pair in zip(g["param_names"], map(id, g["params"]), strict=True)]
    assert dict(named) == {name: id(parameter) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("update", ["un", "un-momentum"])
def test_unit_norm_keeps_filters_at_norm_one_but_for_the_classifiers(update: str) -> None:
    model = small_segnet()
    before = norms(model.classifier.weight)
    take_steps(model, SCENE_OPTIMIZERS[update].make(model, torch.tensor(0.1)))
    for weight in filters(model):
        torch.testing.assert_close(norms(weight), torch.ones(len(weight)))
    after = norms(model.classifier.weight)
    assert (after - 1).abs().max() > 0.1
    assert not torch.equal(after, before)


@pytest.mark.parametrize(
    ("update", "decay"), [("sgd", 5e-4), ("sgd-plain", 5e-4), ("adamw", 0.05), ("invariant-adamw", 0.05)]
)
def test_weights_decay_and_nothing_of_a_single_axis_does(update: str, decay: float) -> None:
    model = small_segnet()
    groups = SCENE_OPTIMIZERS[update].make(model, torch.tensor(0.1)).param_groups
    found = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert found == {id(p): decay if p.ndim > 1 else 0 for p in model.parameters()}


@pytest.mark.parametrize(("update", "momentum"), [("sgd", 0.9), ("sgd-plain", 0)])
def test_what_everybody_uses_has_weights_in_one_group_and_all_else_in_another(
    update: str, momentum: float
) -> None:
    model = small_segnet()
    weights, others = SCENE_OPTIMIZERS[update].make(model, torch.tensor(0.1)).param_groups
    assert {p.ndim for p in weights["params"]} == {4}
    assert {p.ndim for p in others["params"]} == {1}
    assert len(weights["params"]) + len(others["params"]) == len(list(model.parameters()))
    assert (weights["momentum"], others["momentum"]) == (momentum, momentum)


@pytest.mark.parametrize("update", SCENE_OPTIMIZERS)
def test_what_is_said_of_an_update_holds_for_its_optimizer(update: str) -> None:
    registered = SCENE_OPTIMIZERS[update]
    groups = registered.make(small_segnet(), torch.tensor(0.1)).param_groups
    decays, momenta = ({group.get(name, 0) for group in groups} for name in ("weight_decay", "momentum"))
    assert ("decay 5e-4 of weights" in registered.words) == (decays == {5e-4, 0})
    assert ("decay .05 of weights" in registered.words) == (decays == {0.05, 0})
    assert ("decay" in registered.words) == (decays != {0})
    assert ("momentum .9" in registered.words) == (momenta == {0.9})


@pytest.mark.parametrize("names", [["lion"], ["sm", "lion"]])
def test_an_unknown_update_is_refused(names: list[str]) -> None:
    known = "un, un-momentum, sm, sgd, sgd-plain, adamw, invariant-adamw"
    with pytest.raises(OptionError, match=f"unknown update 'lion'; choose from {known}$"):
        require_known(names, SCENE_OPTIMIZERS)


def test_an_update_that_is_put_in_can_be_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Optimizer] = []

    def make(model: nn.Module, rate: torch.Tensor) -> Optimizer:
        made.append(NAdam(model.parameters(), lr=rate))
        return made[-1]

    monkeypatch.setitem(SCENE_OPTIMIZERS, "nadam", SceneOptimizer(make, 1e-3, "as in torch"))
    training = SceneTraining("one", a_scene_run("nadam"), small_segnet, small_scenes())
    assert made == [training.trainer.optimizer]
    first = training.train_epoch()["one"].epoch.loss
    assert training.train_epoch()["one"].epoch.loss < first
