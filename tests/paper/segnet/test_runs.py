import dataclasses
import json

import pytest
from torch import nn

from symoptim.ensemble.run import Cosine, EarlyStopping, FixedEpochs
from symoptim.errors import OptionError
from symoptim.models.segnet import SegNet, SegNetBasic
from symoptim.paper.segnet.protocol import SegNetProtocol
from symoptim.paper.segnet.runs import full_run, network_of, search_runs
from tests.support.small_scenes import EVERYTHING, a_scene_run, small_scenes

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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": -0.1}, "rate must be a finite number above 0, got -0.1"),
        ({"rate": float("nan")}, "rate must be a finite number above 0, got nan"),
        ({"rate": float("inf")}, "rate must be a finite number above 0, got inf"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"measure_every": 0}, "measure_every must be at least 1, got 0"),
        ({"update": "b-sgd", "rate": 0.1}, "unknown update 'b-sgd'; choose from un, un-momentum, sm, sgd"),
        ({"schedule": "cosine"}, "schedule must be one of Constant, Exponential, Bold, Cosine, got 'cosine'"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        a_scene_run(**changes)


def test_a_run_trains_a_fixed_number_of_epochs() -> None:
    with pytest.raises(OptionError, match=r"train a fixed number of epochs, got EarlyStopping\("):
        dataclasses.replace(a_scene_run(), stopping=EarlyStopping())


def test_a_run_is_plain_data_for_the_records() -> None:
    plain = a_scene_run("sm", epochs=7, schedule=Cosine(epochs=7), augmentation=EVERYTHING).as_dict()
    recorded = json.loads(json.dumps(plain))
    assert recorded["schedule"] == {"kind": "Cosine", "epochs": 7}
    assert recorded["stopping"] == {"kind": "FixedEpochs", "maximum": 7}
    assert [recorded["augmentation"][name] for name in ("zoom", "flip", "crop")] == [
        [0.6, 1.2],
        True,
        [14, 20],
    ]
    assert (recorded["update"], recorded["seed"], recorded["batch"]) == ("sm", 0, 4)
    assert (recorded["weighting"], recorded["measure_every"]) == ("root", 1)
