import dataclasses

import pytest
from torch import nn

from symoptim.ensemble.run import Cosine, FixedEpochs
from symoptim.models.segnet import SegNet, SegNetBasic
from symoptim.paper.experiments.segnet_plan import full_run, network_of, search_runs
from symoptim.paper.experiments.segnet_protocol import SegNetProtocol
from tests.support.small_scenes import small_scenes

PROTOCOL = SegNetProtocol(updates=("un", "adamw"), rates=(0.1, 1e-3), features=4, search_crop=(8, 16))


def test_every_update_is_searched_on_the_same_grid() -> None:
    labels = [planned.labels for planned in search_runs(PROTOCOL)]
    assert labels == [
        {"phase": "search", "update": update, "rate": rate}
        for update in ("un", "adamw")
        for rate in (0.1, 1e-3)
    ]
    assert len({planned.name for planned in search_runs(PROTOCOL)}) == 4
    for planned in search_runs(PROTOCOL):
        assert (planned.run.update, planned.run.rate) == (planned.labels["update"], planned.labels["rate"])


def test_searches_are_short_runs_on_crops_and_full_runs_are_neither() -> None:
    full = full_run(PROTOCOL, "un", 0.1, 0).run
    assert (full.stopping, full.schedule) == (FixedEpochs(maximum=100), Cosine(epochs=100))
    assert full.augmentation == PROTOCOL.augmentation
    assert full.measure_every == PROTOCOL.measure_every
    for planned in search_runs(PROTOCOL):
        run, epochs = planned.run, PROTOCOL.search_epochs
        assert (run.stopping, run.schedule) == (FixedEpochs(maximum=epochs), Cosine(epochs=epochs))
        assert run.augmentation == dataclasses.replace(PROTOCOL.augmentation, crop=(8, 16))
        assert run.measure_every == epochs


def test_a_search_is_never_longer_than_a_full_run() -> None:
    for epochs, longest in ((5, 5), (30, 20)):
        for planned in search_runs(dataclasses.replace(PROTOCOL, epochs=epochs, search_epochs=20)):
            run = planned.run
            assert (run.stopping, run.schedule) == (FixedEpochs(maximum=longest), Cosine(epochs=longest))
            assert run.measure_every == longest


def test_in_one_repeat_updates_differ_in_nothing_but_the_update() -> None:
    one, other = (full_run(PROTOCOL, update, 0.1, 1).run for update in PROTOCOL.updates)
    assert dataclasses.replace(one, update="adamw") == other


def test_repeats_rates_and_protocols_have_names_or_seeds_of_their_own() -> None:
    one = full_run(PROTOCOL, "un", 0.1, 0)
    again, faster = full_run(PROTOCOL, "un", 0.1, 1), full_run(PROTOCOL, "un", 0.2, 0)
    assert len({one.name, again.name, faster.name}) == 3
    assert one.run.seed == faster.run.seed != again.run.seed
    assert full_run(dataclasses.replace(PROTOCOL, seed=1), "un", 0.1, 0).run.seed != one.run.seed
    assert {planned.run.seed for planned in search_runs(PROTOCOL)}.isdisjoint({one.run.seed, again.run.seed})


def test_the_basic_network_takes_pixels_as_they_are() -> None:
    basic = dataclasses.replace(PROTOCOL, network="segnet-basic")
    network = network_of(basic, small_scenes().train)()
    assert isinstance(network, SegNetBasic)
    assert network.classifier.weight.shape == (11, 4, 1, 1)


def test_the_large_network_takes_pixels_standardized_by_the_training_images() -> None:
    images = small_scenes().train.images.float()
    network = network_of(PROTOCOL, small_scenes().train)()
    assert isinstance(network, nn.Sequential)
    pixels, segnet = network
    assert isinstance(segnet, SegNet)
    assert segnet.classifier.weight.shape == (11, 4, 3, 3)
    assert pixels(images).mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert network(images[:2]).shape == (2, 11, 16, 24)


@pytest.mark.parametrize("network", ["segnet", "segnet-basic"])
def test_every_network_starts_anew(network: str) -> None:
    make = network_of(dataclasses.replace(PROTOCOL, network=network), small_scenes().train)
    one, other = (dict(make().named_parameters()) for _ in range(2))
    assert not any(one[name] is other[name] for name in one)
