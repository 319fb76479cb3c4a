"""Everybody who is here computes what it says, and a thousandth too much is seen."""

import math
from collections.abc import Callable

import pytest
import torch

from symoptim.bench import gate as module
from symoptim.bench.cases import Case, Weight
from symoptim.bench.contestants import Contestant
from symoptim.bench.gate import gate, passes
from symoptim.bench.material import Material
from symoptim.bench.rivals import CONTESTANTS
from tests.support.wrong import RAISING, WRONG

CPU = torch.device("cpu")
QUICK = [one for one in CONTESTANTS.values() if not one.compiles]


@pytest.fixture(scope="module")
def materials() -> dict[torch.dtype, Material]:
    return {}


def made(materials: dict[torch.dtype, Material], case: Case, dtype: torch.dtype) -> Material:
    if dtype not in materials:
        materials[dtype] = Material(case, CPU, dtype, symmetries=True)
    return materials[dtype]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("one", QUICK, ids=lambda one: one.name)
def test_everybody_here_passes(
    materials: dict[torch.dtype, Material], small: Callable[[], Case], one: Contestant, momentum: float
) -> None:
    reason = one.missing(CPU, torch.float32)
    if reason:
        pytest.skip(reason)
    assert gate(one, made(materials, small(), torch.float32), momentum) < 1e-5


@pytest.mark.parametrize("name", ["sm-reference", "un-reference", "full-reference"])
def test_ours_pass_in_bfloat16(
    materials: dict[torch.dtype, Material], small: Callable[[], Case], name: str
) -> None:
    assert gate(CONTESTANTS[name], made(materials, small(), torch.bfloat16), 0.9) < 0.03


def test_a_wrong_one_does_not_pass(materials: dict[torch.dtype, Material], small: Callable[[], Case]) -> None:
    error = gate(WRONG, made(materials, small(), torch.float32), 0.9)
    assert error == pytest.approx(1e-3, rel=0.3)
    assert not passes(error, torch.float32)


def test_large_tensors_are_looked_at_from_the_first_to_the_last_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 100)
    case = Case(name="large", title="large", weights=(Weight((70, 3)), Weight((4, 90), "columns")))
    material = Material(case, CPU, torch.float32, symmetries=False)
    assert gate(CONTESTANTS["sm-reference"], material, 0.9) < 1e-5
    assert not passes(gate(WRONG, material, 0.9), torch.float32)


def test_what_is_not_a_number_does_not_pass() -> None:
    assert not passes(math.nan, torch.float32)


def test_a_missing_package_and_an_unknown_keyword_are_reasons() -> None:
    from tests.support.wrong import ABSENT

    assert ABSENT.missing(CPU, torch.float32) == "not installed: pip install no-such-package"
    assert not RAISING.missing(CPU, torch.float32)
    assert "float32 only" in CONTESTANTS["sm-compiled"].missing(CPU, torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["sm-compiled", "un-compiled"])
def test_the_compiled_step_passes(small: Callable[[], Case], name: str, momentum: float) -> None:
    material = Material(small(), CPU, torch.float32, symmetries=False)
    assert gate(CONTESTANTS[name], material, momentum) < 1e-5
