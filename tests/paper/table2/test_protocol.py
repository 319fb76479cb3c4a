import pytest

from symoptim.errors import OptionError
from symoptim.paper.table2.protocol import PROFILES, Protocol, protocol_for


def test_the_paper_profile_is_the_papers_protocol() -> None:
    paper = protocol_for("paper", "mnist")
    assert paper.rates == (1e-2, 1e-3, 1e-4, 1e-5)
    assert (paper.selection_train, paper.selection_validation, paper.selection_epochs) == (1000, 500, 50)
    assert (paper.train, paper.validation, paper.batch) == (50_000, 10_000, 100)
    assert (paper.exponential.decay, paper.bold.grow, paper.bold.shrink) == (0.95, 1.1, 0.5)
    assert (paper.stopping.minimum, paper.stopping.maximum, paper.stopping.lookback) == (25, 60, 5)
    assert (paper.repeats, paper.classifier, paper.seed) == (10, "rows", 0)
    assert (paper.depths, paper.updates) == ((2, 4), ("b-sgd", "sm", "un"))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("data", "images"), [("mnist", 60_000), ("digits", 1_500)])
def test_every_profile_fits_its_data(profile: str, data: str, images: int) -> None:
    protocol = protocol_for(profile, data)
    assert protocol.train + protocol.validation <= images
    assert protocol.selection_train + protocol.selection_validation <= images


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"updates": ("sm", "sdg")}, "unknown update 'sdg'; choose from b-sgd, sm, un, full"),
        ({"updates": ()}, "updates must be different and at least one, got none"),
        ({"updates": ("sm", "sm")}, "updates must be different and at least one, got sm, sm"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        protocol_for("quick", "mnist", **changes)


def test_too_few_images_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(OptionError, match=r"needs 50000 \+ 10000 training images, the data have 1500"):
        Protocol().require_images(1500)
    Protocol().require_images(60_000)


def test_a_change_that_is_none_changes_nothing() -> None:
    assert protocol_for("paper", "mnist", repeats=None, seed=3) == Protocol(seed=3)
