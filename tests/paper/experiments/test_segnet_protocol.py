import json

import pytest

from symoptim.ensemble.run import Bold, Cosine, Exponential
from symoptim.errors import OptionError
from symoptim.paper.experiments.segnet_protocol import PROFILES, SegNetProtocol, segnet_protocol
from symoptim.paper.segnet.updates import SCENE_UPDATES


def test_the_paper_profile_is_segnet_at_full_size_for_the_papers_epochs() -> None:
    paper = segnet_protocol("paper")
    assert (paper.network, paper.features, paper.size) == ("segnet", 64, (360, 480))
    assert (paper.epochs, paper.batch, paper.repeats) == (100, 8, 3)
    assert paper.updates == ("un", "sm", "sgd", "sgd-plain", "adamw")
    assert paper.search_crop is not None
    assert all(piece <= whole for piece, whole in zip(paper.search_crop, paper.size, strict=True))


def test_the_quick_profile_is_one_run_without_a_search() -> None:
    quick = segnet_protocol("quick")
    assert (quick.network, quick.updates, quick.repeats, quick.rates) == ("segnet-basic", ("un",), 1, ())
    assert quick.search_epochs == 4 < quick.epochs  # where rates are given


def test_the_grid_has_two_rates_in_every_power_of_ten() -> None:
    assert segnet_protocol("paper").rates == (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"updates": ("un", "nu")},
            "unknown update 'nu'; choose from un, un-momentum, sm, sgd, sgd-plain, adamw",
        ),
        ({"updates": ()}, "updates must be different and at least one, got none"),
        ({"updates": ("un", "un")}, "updates must be different and at least one, got un, un"),
        ({"features": 0}, "features must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"search_epochs": 0}, "search_epochs must be at least 1, got 0"),
        ({"finalists": 0}, "finalists must be at least 1, got 0"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"rates": (0.1, 0.0)}, "rates must be finite numbers above 0, got 0.1, 0"),
        ({"rates": (float("inf"),)}, "rates must be finite numbers above 0"),
        ({"rates": (0.1, 0.2, 0.1)}, "rates must differ in their first six digits, got 0.1, 0.2, 0.1"),
        ({"measure_every": 0}, "measure_every must be at least 1, got 0"),
        (
            {"size": (90, 120), "rates": (0.1,), "search_crop": (80, 130)},
            "a crop of 80 x 130 does not fit into 90 x 120",
        ),
    ],
)
@pytest.mark.parametrize("profile", PROFILES)
def test_bad_options_are_refused(profile: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        segnet_protocol(profile, **changes)


def test_a_change_that_is_none_changes_nothing_and_no_rates_are_a_change() -> None:
    assert segnet_protocol("paper", updates=None, seed=3) == SegNetProtocol(seed=3)
    assert segnet_protocol("paper", rates=()).rates == ()


def test_schedules_end_with_the_run() -> None:
    by_name = {name: segnet_protocol("paper", schedule=name) for name in ("cosine", "exponential", "bold")}
    assert by_name["cosine"].schedule_over(30) == Cosine(epochs=30)
    assert by_name["bold"].schedule_over(30) == Bold()
    exponential = by_name["exponential"].schedule_over(30)
    assert isinstance(exponential, Exponential)
    assert exponential.decay**30 == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("rates", "finalists", "places"), [((0.1, 0.2, 0.3, 0.4), 3, 3), ((0.1, 0.2), 3, 2), ((), 3, 1)]
)
def test_no_more_rates_run_in_full_than_there_are(
    rates: tuple[float, ...], finalists: int, places: int
) -> None:
    assert SegNetProtocol(rates=rates, finalists=finalists).places == places


@pytest.mark.parametrize("update", SCENE_UPDATES)
def test_every_update_is_registered_with_a_rate_inside_the_grid(update: str) -> None:
    lowest, *_, highest = SegNetProtocol().rates
    assert lowest < SCENE_UPDATES[update].rate < highest


@pytest.mark.parametrize("profile", PROFILES)
def test_a_protocol_is_plain_data_for_the_records(profile: str) -> None:
    protocol = segnet_protocol(profile)
    recorded = json.loads(json.dumps(protocol.as_dict()))
    assert tuple(recorded["size"]) == protocol.size
    assert recorded["augmentation"]["flip"] is True
