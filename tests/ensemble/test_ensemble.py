"""Whole trainings: an ensemble does to each run what a plain loop with an ordinary optimizer would do."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import symoptim
from symoptim.ensemble import (
    UPDATES,
    Bold,
    EarlyStopping,
    Ensemble,
    Exponential,
    FixedEpochs,
    Result,
    Run,
    Split,
)
from symoptim.ensemble.fast import MAX_THREADS
from symoptim.errors import OptionError
from symoptim.support.seeds import derive_seed, permutations, seeded
from tests.support.small import a_run, ensemble_of, small_data, small_network, train


def group_of(model: nn.Module) -> symoptim.SymmetrySpec:
    """Symmetries of a network on the small images."""
    return symoptim.discover(model, (small_data().train_images[:3],))


OPTIMIZERS: dict[str, Callable[[nn.Module, float], torch.optim.Optimizer]] = {
    "b-sgd": lambda model, lr: torch.optim.SGD(model.parameters(), lr=lr),
    "sm": lambda model, lr: symoptim.ScaledSGD(symoptim.param_groups(model), lr=lr),
    "un": lambda model, lr: symoptim.UnitNormSGD(symoptim.param_groups(model), lr=lr),
    "full": lambda model, lr: symoptim.FullMetricSGD(model, group_of(model), lr=lr),
    "geometric": lambda model, lr: symoptim.FullMetricSGD(
        model, group_of(model), lr=lr, gauge=symoptim.Geometric()
    ),
    "adamw": lambda model, lr: torch.optim.AdamW(model.parameters(), lr=lr),
    "invariant-adamw": lambda model, lr: symoptim.invariant(
        torch.optim.AdamW, symoptim.param_groups(model), lr=lr
    ),
}


def losses_of_a_plain_loop(
    run: Run, factory: Callable[[], nn.Module], data: Split, *, batch: int
) -> list[float]:
    """What the run would meet alone, with an optimizer as a user would write it."""
    with seeded(derive_seed(run.seed, "weights")):
        model = factory()
    optimizer = OPTIMIZERS[run.update](model, run.rate)
    drawn = permutations([derive_seed(run.seed, "split")], 0, len(data.train_labels))[0, : run.train]
    losses: list[float] = []
    for epoch in range(1, run.stopping.maximum + 1):
        order = drawn[permutations([derive_seed(run.seed, "batches")], epoch, run.train)[0]]
        total = 0.0
        for index in order.split(batch):
            optimizer.zero_grad()
            scores = model(data.train_images[index])
            loss = cross_entropy(scores, data.train_labels[index], reduction="sum")
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / run.train)
    return losses


def losses(results: list[Result]) -> list[float]:
    return [result.epoch.loss for result in results]


@pytest.mark.parametrize("architecture", ["arch1", "arch2"])
def test_every_update_trains_as_its_optimizer_does_in_a_plain_loop(architecture: str) -> None:
    assert set(OPTIMIZERS) == set(UPDATES)
    runs = {f"{update}-{seed}": a_run(update, seed=seed) for update in UPDATES for seed in (0, 1)}
    results = train(ensemble_of(runs, architecture=architecture))
    for name, run in runs.items():
        expected = losses_of_a_plain_loop(run, small_network(architecture), small_data(), batch=30)
        assert losses(results[name]) == pytest.approx(expected, rel=1e-10), name
        assert expected[-1] < expected[0]


def test_rates_and_schedules_are_each_runs_own() -> None:
    runs = {
        "constant": a_run(rate=1e-3),
        "decay": a_run(rate=1e-2, schedule=Exponential(decay=0.5)),
        "bold": a_run(rate=1e-2, schedule=Bold(grow=2.0)),
    }
    results = train(ensemble_of(runs))
    rates = {name: [result.epoch.rate for result in those] for name, those in results.items()}
    assert rates["constant"] == [1e-3, 1e-3, 1e-3]
    assert rates["decay"] == pytest.approx([1e-2, 5e-3, 2.5e-3])
    first, second, third = losses(results["bold"])
    assert second <= first
    assert rates["bold"] == pytest.approx([1e-2, 1e-2, 2e-2])
    assert third != first


def test_a_run_alone_and_among_others_agree() -> None:
    run = a_run("un", seed=5)
    others = {f"{u}-{s}": a_run(u, seed=s, rate=r) for u in UPDATES for s, r in ((1, 1e-3), (2, 1e-2))}
    alone = train(ensemble_of({"it": run}))["it"]
    company = train(ensemble_of({**others, "it": run}))["it"]
    assert losses(company) == pytest.approx(losses(alone), rel=1e-12)
    assert [r.epoch[3:] for r in company] == [r.epoch[3:] for r in alone]


def test_a_diverging_run_leaves_all_others_bit_identical() -> None:
    calm = {"a": a_run("b-sgd"), "b": a_run("b-sgd", seed=1), "c": a_run("sm")}
    wild = {**calm, "b": a_run("b-sgd", seed=1, rate=1e300)}
    expected, results = (train(ensemble_of(runs, architecture="arch1")) for runs in (calm, wild))
    assert not math.isfinite(results["b"][-1].epoch.loss)
    outcome = results["b"][-1].outcome
    assert outcome is not None
    assert outcome.diverged
    for name in ("a", "c"):
        assert results[name] == expected[name]


@pytest.mark.parametrize("update", UPDATES)
def test_runs_that_stop_leave_and_the_others_go_on_undisturbed(update: str) -> None:
    stay = {"first": a_run(update, seed=1), "last": a_run(update, seed=2)}
    leave = {"out": a_run(update, seed=3, stopping=FixedEpochs(maximum=1))}
    company = ensemble_of({"first": stay["first"], **leave, "last": stay["last"]})
    results = train(company)
    assert len(results["out"]) == 1
    assert company.trainer.images.order.shape[0] == 2
    expected = train(ensemble_of(stay))
    for name in stay:
        assert losses(results[name]) == pytest.approx(losses(expected[name]), rel=1e-10)


def test_early_stopping_ends_a_run_at_the_first_epoch_beyond_the_minimum() -> None:
    # A rate so small that no answer changes: the validation error stays where it is.
    stopping = EarlyStopping(minimum=3, maximum=6, lookback=2)
    still = a_run(rate=1e-30, schedule=Bold(), stopping=stopping)
    results = train(ensemble_of({"still": still}, architecture="arch1"))["still"]
    assert len(results) == 4
    assert results[-1].outcome is not None
    assert results[-1].outcome.reason == "validation error changed by less than 1e-05"


def test_training_and_validation_images_are_disjoint_and_each_is_seen_once_per_epoch() -> None:
    ensemble = ensemble_of({"a": a_run(seed=1), "b": a_run(seed=2)})
    trainer = ensemble.trainer
    orders: list[torch.Tensor] = []
    for _ in range(2):
        ensemble.train_epoch()
        orders.append(trainer.images.order.clone())
    for row in range(2):
        train_set, validation = trainer.images.train[row], trainer.images.validation[row]
        assert len(torch.cat([train_set, validation]).unique()) == 240
        for order in orders:
            assert torch.equal(order[row].sort().values, train_set.sort().values)
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(trainer.images.train[0], trainer.images.train[1])


def test_errors_are_shares_of_the_runs_own_images() -> None:
    ensemble = ensemble_of({"a": a_run(seed=1), "b": a_run(seed=2)})
    results = train(ensemble)
    model = copy.deepcopy(ensemble.trainer.stack.template).to_empty(device="cpu").eval()
    for row, name in enumerate(results):
        weights = {**ensemble.trainer.stack.parameters, **ensemble.trainer.stack.buffers}
        model.load_state_dict({key: stacked[row] for key, stacked in weights.items()})
        data, index = small_data(), ensemble.trainer.images.validation[row]
        epoch = results[name][-1].epoch
        for images, labels, error in (
            (data.train_images[index], data.train_labels[index], epoch.validation_error),
            (data.test_images, data.test_labels, epoch.test_error),
        ):
            wrong = model(images).argmax(dim=1) != labels
            assert error == wrong.double().mean().item()


def test_evaluation_in_several_batches_counts_every_image(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {"a": a_run(seed=1), "b": a_run(seed=2)}
    whole = train(ensemble_of(runs))
    monkeypatch.setattr("symoptim.ensemble.run_group.IMAGES_AT_ONCE", 14)
    assert train(ensemble_of(runs)) == whole


class Half(nn.Module):
    """A network with a layer it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(12, 4), nn.Linear(12, 4)
        self.double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.used(inputs)


def test_parameters_without_a_gradient_stay_as_they_are() -> None:
    runs = {update: a_run(update) for update in ("b-sgd", "sm", "adamw")}
    ensemble = Ensemble(runs, Half, small_data(), batch=30)
    train(ensemble)
    with seeded(derive_seed(0, "weights")):
        model = Half()
    for name in runs:
        trained = ensemble.network(name)
        torch.testing.assert_close(trained.get_parameter("unused.weight"), model.unused.weight)
        assert not torch.equal(trained.get_parameter("used.weight"), model.used.weight)


def test_the_network_of_a_run_is_the_one_that_was_measured() -> None:
    runs = {"short": a_run(stopping=FixedEpochs(maximum=1)), "long": a_run("un", seed=1)}
    ensemble = ensemble_of(runs)
    train(ensemble)
    data = small_data()
    for name in runs:
        wrong = ensemble.network(name)(data.test_images).argmax(dim=1) != data.test_labels
        assert wrong.double().mean().item() == ensemble.histories[name][-1].test_error
    with pytest.raises(OptionError, match="network of run 'other' is not here, only those of short, long"):
        ensemble.network("other")


def test_there_is_no_epoch_after_the_last() -> None:
    ensemble = ensemble_of({"a": a_run(stopping=FixedEpochs(maximum=1))})
    train(ensemble)
    with pytest.raises(OptionError, match="all runs have ended"):
        ensemble.train_epoch()


def test_float32_products_are_not_rounded_further() -> None:
    seen: set[str] = set()

    class Witness(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            seen.add(torch.get_float32_matmul_precision())
            return super().forward(input)

    torch.set_float32_matmul_precision("high")
    try:
        train(Ensemble({"a": a_run()}, lambda: Witness(12, 4).double(), small_data(), batch=30))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == {"highest"}


@pytest.mark.parametrize("update", ["sm", "un"])
def test_more_threads_while_an_ensemble_trains_change_nothing_but_rounding(update: str) -> None:
    runs = {"a": a_run(update), "b": a_run(update, seed=1)}
    expected = train(ensemble_of(runs))
    ensemble = ensemble_of(runs)
    before = torch.get_num_threads()
    torch.set_num_threads(MAX_THREADS + 1)  # numba's layers were chosen with fewer
    try:
        found = train(ensemble)
    finally:
        torch.set_num_threads(before)
    for name, results in expected.items():
        assert losses(found[name]) == pytest.approx(losses(results), rel=1e-9)
        assert [result.outcome for result in found[name]] == [result.outcome for result in results]


@pytest.mark.parametrize(
    ("runs", "batch", "message"),
    [
        ({}, 30, "nothing to train"),
        ({"a": a_run("sgd")}, 30, "unknown update 'sgd'; choose from b-sgd, sm, un"),
        ({"a": a_run()}, 0, "batch must be at least 1, got 0"),
        ({"a": a_run(), "b": a_run(train=100)}, 30, "need the same train and validation sizes"),
        ({"a": a_run(train=230)}, 30, r"230 \+ 40 images, but there are 240"),
    ],
)
def test_runs_that_cannot_train_together_are_refused(runs, batch: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ensemble_of(runs, batch=batch)


def test_rescaled_networks_train_alike_by_invariant_updates_alone() -> None:
    def rescaled() -> nn.Module:
        model = symoptim.models.arch2(2, inputs=12, width=8, classes=4, eps=1e-30).double()
        return model.rescale_(model.random_scales(seed=3, low=0.1, high=10))

    runs = {update: a_run(update) for update in UPDATES}
    straight = Ensemble(
        runs,
        lambda: symoptim.models.arch2(2, inputs=12, width=8, classes=4, eps=1e-30).double(),
        small_data(),
        batch=30,
    )
    moved = Ensemble(runs, rescaled, small_data(), batch=30)
    one, other = train(straight), train(moved)
    for update in ("sm", "un", "full", "geometric", "invariant-adamw"):
        assert losses(other[update]) == pytest.approx(losses(one[update]), rel=1e-10), update
    for update in ("b-sgd", "adamw"):
        assert losses(other[update]) != pytest.approx(losses(one[update]), rel=1e-3), update


@pytest.mark.parametrize("stop", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5, 6))])
def test_training_resumed_from_a_saved_state_goes_on_bit_for_bit(stop: int, tmp_path) -> None:
    early = EarlyStopping(minimum=2, maximum=6, lookback=2)
    runs = {
        f"{update}-{seed}": a_run(update, seed=seed, schedule=Bold(), stopping=stopping)
        for update in UPDATES
        for seed, stopping in ((0, FixedEpochs(maximum=6)), (1, early))
    }
    expected = train(ensemble_of(runs))
    first, second = ensemble_of(runs), ensemble_of(runs)
    for _ in range(stop):
        first.train_epoch()
    torch.save(first.state_dict(), tmp_path / "state")
    second.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert second.running == first.running
    assert second.histories == first.histories
    for name, results in train(second).items():
        assert results == expected[name][stop:]


def test_a_state_of_runs_that_have_ended_here_is_refused_and_changes_nothing() -> None:
    runs = {str(last): a_run(seed=last, stopping=FixedEpochs(maximum=last)) for last in (1, 3)}
    ensemble = ensemble_of(runs)
    fresh = ensemble.state_dict()
    ensemble.train_epoch()
    with pytest.raises(OptionError, match="run '1' has ended here"):
        ensemble.load_state_dict(fresh)
    assert (ensemble.epochs, ensemble.running) == (1, ["3"])
    assert len(ensemble.histories["3"]) == 1


def test_a_state_is_not_saved_between_start_epoch_and_train_epoch() -> None:
    ensemble = ensemble_of({"a": a_run()})
    ensemble._start_epoch()
    with pytest.raises(OptionError, match="an epoch has been started"):
        ensemble.state_dict()
    ensemble.train_epoch()
    ensemble.state_dict()
