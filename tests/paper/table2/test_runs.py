import pytest
import torch
from torch import nn

from symoptim.ensemble.run import Bold, Constant, EarlyStopping, Exponential, FixedEpochs
from symoptim.paper.table2.protocol import Protocol
from symoptim.paper.table2.runs import Shape, full_runs, network_of, selection_runs, shapes
from symoptim.support.seeds import seeded
from tests.support.small import small_data

PAPER = Protocol()
SHAPE = Shape("arch1", 4)


def full(protocol: Protocol = PAPER):
    return full_runs(protocol, SHAPE, lambda update, repeat: 1e-3)


def test_the_paper_is_240_full_runs_and_480_selection_runs() -> None:
    all_shapes = shapes(PAPER)
    assert len(all_shapes) == 4
    assert sum(len(selection_runs(PAPER, shape)) for shape in all_shapes) == 480
    assert sum(len(full_runs(PAPER, shape, lambda u, r: 1.0)) for shape in all_shapes) == 240


def test_selection_is_short_at_a_constant_rate_for_every_candidate() -> None:
    runs = [planned.run for planned in selection_runs(PAPER, SHAPE).values()]
    assert {run.rate for run in runs} == {1e-2, 1e-3, 1e-4, 1e-5}
    assert {run.schedule for run in runs} == {Constant()}
    assert {run.stopping for run in runs} == {FixedEpochs(maximum=50)}
    assert {(run.train, run.validation) for run in runs} == {(1000, 500)}


def test_exponential_decay_runs_60_epochs_and_the_bold_driver_stops_early() -> None:
    rules = {(planned.run.schedule, planned.run.stopping) for planned in full().values()}
    assert rules == {
        (Exponential(decay=0.95), FixedEpochs(maximum=60)),
        (Bold(grow=1.1, shrink=0.5), EarlyStopping(minimum=25, maximum=60)),
    }


def test_a_repeat_has_one_seed_for_all_updates_and_schedules_and_repeats_differ() -> None:
    by_repeat: dict[object, set[int]] = {}
    for planned in full().values():
        by_repeat.setdefault(planned.labels["repeat"], set()).add(planned.run.seed)
    assert [len(seeds) for seeds in by_repeat.values()] == [1] * 10
    assert len(set.union(*by_repeat.values())) == 10


def test_the_selection_is_redone_for_every_repeat() -> None:
    seeds = {(p.labels["repeat"], p.run.seed) for p in selection_runs(PAPER, SHAPE).values()}
    assert len(seeds) == len({seed for _, seed in seeds}) == 10


@pytest.mark.parametrize("shape", shapes(PAPER), ids=str)
def test_a_shapes_network_has_its_depth_and_its_normalization(shape: Shape) -> None:
    modules = list(network_of(PAPER, shape, small_data())().modules())
    filters = [module for module in modules if isinstance(module, nn.Linear)]
    norms = [module for module in modules if isinstance(module, nn.BatchNorm1d)]
    assert len(filters) == shape.depth + 1
    assert len(norms) == (shape.depth if shape.architecture == "arch2" else 0)


def test_selection_and_full_runs_are_fresh_and_seeds_differ() -> None:
    selection = {planned.run.seed for planned in selection_runs(PAPER, SHAPE).values()}
    assert selection.isdisjoint({planned.run.seed for planned in full().values()})
    other = {planned.run.seed for planned in full(Protocol(seed=1)).values()}
    assert other.isdisjoint({planned.run.seed for planned in full().values()})


def test_rates_are_the_chosen_ones_and_runs_without_one_are_left_out() -> None:
    chosen = full_runs(PAPER, SHAPE, lambda update, repeat: None if update == "sm" else 1e-3 * (repeat + 1))
    assert {planned.labels["update"] for planned in chosen.values()} == {"b-sgd", "un"}
    assert all(p.run.rate == 1e-3 * (p.labels["repeat"] + 1) for p in chosen.values())  # pyright: ignore


def test_the_classifier_starts_with_rows_or_columns_of_unit_norm() -> None:
    for classifier, axis in (("rows", 1), ("columns", 0)):
        make = network_of(Protocol(classifier=classifier), Shape("arch2", 2), small_data())
        with seeded(0):
            norms = make().classifier.weight.norm(dim=axis)
        torch.testing.assert_close(norms, torch.ones_like(norms))


def test_networks_fit_the_data() -> None:
    model = network_of(PAPER, SHAPE, small_data())()
    assert model(small_data(torch.float32).test_images).shape == (60, 4)
