import pytest

from symoptim.ensemble import registry
from symoptim.paper.segnet.updates import SCENE_OPTIMIZERS
from symoptim.paper.table2.claims import INVARIANT
from symoptim.paper.updates import UPDATES, info


@pytest.mark.parametrize("update", registry.UPDATES)
def test_updates_of_ensembles_have_the_same_title_in_both_tables(update: str) -> None:
    assert UPDATES[update].title == registry.UPDATES[update].title


def test_every_update_of_either_experiment_is_listed_and_nothing_else() -> None:
    assert set(UPDATES) == {*registry.UPDATES, *SCENE_OPTIMIZERS}


def test_the_papers_own_are_those_its_claims_are_about() -> None:
    assert {name for name, update in UPDATES.items() if update.role == "paper"} == set(INVARIANT)


def test_updates_of_one_page_have_lines_of_their_own() -> None:
    for names in (SCENE_OPTIMIZERS, ["b-sgd", "sm", "un", "full", "adamw", "invariant-adamw"]):
        lines = [str(info(name).line) for name in names]
        assert len(set(lines)) == len(lines)


def test_an_update_that_is_not_listed_is_a_rival_of_its_name() -> None:
    assert (info("nadam").title, info("nadam").role) == ("nadam", "rival")
