"""The paper's networks in closed form, against autograd in float64: the same numbers, by every update."""

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn

from symoptim.ensemble.fast.closed_form import ClosedFormNetwork, is_pairwise
from symoptim.ensemble.fast.factored_gradient import FactoredGradient, dense_gradient
from symoptim.ensemble.fast.hidden_layer import HiddenPass, NumbaHiddenPass, TorchHiddenPass
from symoptim.ensemble.run_group import AutogradNetwork, RunGroup
from symoptim.ensemble.stacked_model import StackedModel
from symoptim.ensemble.trainer import Trainer
from symoptim.errors import OptionError
from symoptim.models import arch1, arch2
from tests.support.small import PIXELS, a_run, batch_of, small_data, small_network

UPDATES = ("b-sgd", "sm", "un", "adamw")
"""Those that need no gradient as a tensor, and one that does."""


@pytest.fixture(params=[TorchHiddenPass, NumbaHiddenPass], autouse=True)
def hidden(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[HiddenPass]:
    """Both ways: as where numba is missing, and with what it compiles."""
    if request.param is NumbaHiddenPass:
        pytest.importorskip("numba")
        monkeypatch.setattr("symoptim.ensemble.fast.MAX_THREADS", torch.get_num_threads())
    else:
        for module in ("hidden_layer", "factored_gradient"):
            monkeypatch.setattr(f"symoptim.ensemble.fast.{module}.numba_layers_for", lambda _: None)
    return request.param


def test_layers_are_compiled_where_numba_supports_them(
    hidden: type[HiddenPass], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = StackedModel(small_network(), [0])
    assert ClosedFormNetwork(stack).hidden_pass is hidden
    monkeypatch.setattr("symoptim.ensemble.fast.MAX_THREADS", 0)
    assert ClosedFormNetwork(stack).hidden_pass is TorchHiddenPass


def trainer_of(architecture: str, depth: int, **rates: float) -> Trainer:
    """A run of each."""
    make = {"arch1": arch1, "arch2": arch2}[architecture]
    return Trainer(
        [a_run(update, seed=5, rate=rates.get(update.replace("-", "_"), 1e-2)) for update in UPDATES],
        lambda: make(depth, inputs=PIXELS, width=8, classes=4).double(),
        small_data(),
        batch=30,
        device=torch.device("cpu"),
    )


def stepped(trainer: Trainer, passes: type[ClosedFormNetwork] | type[AutogradNetwork]) -> dict[str, Tensor]:
    """All there is after two steps, the second on fewer images."""
    everything = torch.arange(len(UPDATES))
    network = passes(trainer.stack)
    here = slice(0, len(UPDATES))
    group = RunGroup(here, network, trainer.optimizers, trainer.images, trainer.totals, everything)
    for part in (slice(30), slice(30, 41)):
        group.step(batch_of(trainer.images.train, part))
    group.measure(test=True)
    counted = {name: getattr(trainer.totals, name) for name in ("loss", "wrong", "validation", "test")}
    return {**trainer.stack.parameters, **trainer.stack.buffers, **counted}


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_steps_and_errors_are_those_of_autograd(architecture: str, depth: int) -> None:
    expected = stepped(trainer_of(architecture, depth), AutogradNetwork)
    for name, found in stepped(trainer_of(architecture, depth), ClosedFormNetwork).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_a_run_that_diverges_becomes_nan_and_changes_no_other(architecture: str) -> None:
    calm = stepped(trainer_of(architecture, 2), ClosedFormNetwork)
    wild = stepped(trainer_of(architecture, 2, b_sgd=1e300), ClosedFormNetwork)
    reference = stepped(trainer_of(architecture, 2, b_sgd=1e300), AutogradNetwork)
    assert not wild["loss"][0].isfinite()
    for name, found in wild.items():
        assert found[1:].equal(calm[name][1:]), name
    for counted in ("wrong", "validation", "test"):
        assert wild[counted].equal(reference[counted])


def test_equal_features_of_a_pair_share_the_gradient() -> None:
    stack = StackedModel(small_network("arch1"), seeds=[0, 1])
    filters = stack.parameters["hidden.0.filters.weight"].detach()
    filters[:, 1] = filters[:, 0]
    images, labels = torch.rand(2, 10, PIXELS, dtype=torch.float64), torch.randint(4, (2, 10))
    expected, found = (passes(stack).train(images, labels) for passes in (AutogradNetwork, ClosedFormNetwork))
    for name, gradient in expected.gradients.items():
        torch.testing.assert_close(dense_gradient(found.gradients[name]), gradient, msg=name)
    gradient = dense_gradient(found.gradients["hidden.0.filters.weight"])
    assert gradient[:, 0].abs().max() > 0
    assert gradient[:, 0].equal(gradient[:, 1])


def test_a_slice_of_a_factored_gradient_is_that_of_its_runs() -> None:
    product = FactoredGradient(*torch.rand(3, 4, 5, 5))
    assert product[1:3].dense().equal(product.dense()[1:3])


def other_forward(network: nn.Module) -> nn.Module:
    class Other(type(network)):
        pass

    network.__class__ = Other
    return network


CHANGES = {
    "a subclass": other_forward,
    "a frozen layer": lambda network: network.requires_grad_(False),
    "another activation": lambda network: setattr(network.hidden[0], "norm", nn.GELU()) or network,
    "a classifier with biases": lambda network: setattr(network, "classifier", nn.Linear(4, 10)) or network,
    "filters with biases": lambda network: (
        setattr(network.hidden[0], "filters", nn.Linear(PIXELS, 8)) or network
    ),
    "another pooling": lambda network: setattr(network.hidden[0], "pool", nn.MaxPool1d(2)) or network,
    "averages over all batches": lambda network: setattr(network.hidden[0].norm, "momentum", None) or network,
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_networks_are_not_taken_for_the_papers(change: str) -> None:
    network = arch2(2, inputs=PIXELS, width=8)
    assert is_pairwise(network)
    assert not is_pairwise(CHANGES[change](copy.deepcopy(network)))


def test_a_last_batch_of_one_image_is_refused_where_batches_are_normalized() -> None:
    trainer = trainer_of("arch2", 2)
    trainer.batch = 199
    with pytest.raises(OptionError, match="cannot learn from a batch of 1 image"):
        trainer.start_epoch(1)


def test_many_runs_pass_in_groups_and_train_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trainer_of("arch2", 2)
    monkeypatch.setattr("symoptim.ensemble.trainer.RUNS_AT_ONCE", 3)
    cut = trainer_of("arch2", 2)
    assert [group.here for group in cut.groups] == [slice(0, 3), slice(3, 4)]
    for trainer in (expected, cut):
        trainer.start_epoch(1)
    for one, other in zip(expected.finish_epoch(), cut.finish_epoch(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=0)


@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_runs_of_one_seed_share_their_images_and_train_as_if_they_did_not(architecture: str) -> None:
    runs = [
        a_run(update, seed=seed, rate=rate)
        for update in ("b-sgd", "sm", "un", "adamw")
        for seed in (0, 1)
        for rate in (1e-3, 1e-2)
    ]
    network = small_network(architecture)
    alike, alone = (
        Trainer(runs, network, small_data(), batch=30, device=torch.device("cpu")) for _ in range(2)
    )
    (group,) = alike.groups
    assert group.image_rows.tolist() == [0, 2]
    everything = torch.arange(len(runs))
    alone.groups = [
        dataclasses.replace(alone.groups[0], network=ClosedFormNetwork(alone.stack), image_rows=everything)
    ]
    for trainer in (alike, alone):
        trainer.start_epoch(1)
    for name, expected in {**alone.stack.parameters, **alone.stack.buffers}.items():
        found = {**alike.stack.parameters, **alike.stack.buffers}[name]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12, msg=name)
    for errors, expected in zip(alike.finish_epoch()[1:], alone.finish_epoch()[1:], strict=True):
        assert errors.equal(expected)
    alike.keep([0, 1, 2, 5, 8, 12])  # no longer the same seeds everywhere
    assert alike.groups[0].image_rows.tolist() == list(range(6))
