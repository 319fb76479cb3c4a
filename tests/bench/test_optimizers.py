from typing import get_args

import pytest

from symoptim.bench.cases import CASES
from symoptim.bench.optimizers import CONTESTANTS, FOR_MODELS, contestants_named
from symoptim.bench.records import FAMILIES, REFERENCE
from symoptim.cli import bench
from symoptim.errors import OptionError


def test_the_one_others_are_compared_with_is_always_there() -> None:
    assert [one.name for one in contestants_named(("un-fused",), compiled=False)] == [REFERENCE, "un-fused"]
    assert [one.name for one in contestants_named(None, compiled=False)] == list(CONTESTANTS)
    assert contestants_named(FOR_MODELS, compiled=False)[0].name == REFERENCE


def test_an_unknown_optimizer_is_named_with_where_others_are() -> None:
    with pytest.raises(OptionError, match=r"unknown optimizer 'adam'; choose from sgd-fused, .*rivals\.py"):
        contestants_named(("adam",), compiled=False)


def test_tables_know_where_each_optimizer_goes() -> None:
    assert {name.partition("-")[0] for name in CONTESTANTS} <= set(FAMILIES)


@pytest.mark.parametrize(("option", "names"), [(bench.Optimizers, CONTESTANTS), (bench.Cases, CASES)])
def test_the_help_of_the_command_has_all_names(option: object, names: dict[str, object]) -> None:
    said = get_args(option)[1].help.removeprefix("Of ").removesuffix(".").replace(" (always there)", "")
    assert said.split(", ") == [name for name in names if name != "small"]
