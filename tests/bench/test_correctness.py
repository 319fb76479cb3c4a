"""Every optimizer matches its formula, and a step that is a thousandth too long does not."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from symoptim.bench import correctness as module
from symoptim.bench.cases import Case, Example, Weight, case_of
from symoptim.bench.correctness import error_of, passes
from symoptim.bench.optimizers import CONTESTANTS, Contestant
from symoptim.bench.tensors import CaseTensors
from tests.support.wrong import ABSENT, RAISING, WRONG

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def by_dtype() -> dict[torch.dtype, CaseTensors]:
    return {}


def made(by_dtype: dict[torch.dtype, CaseTensors], case: Case, dtype: torch.dtype) -> CaseTensors:
    if dtype not in by_dtype:
        by_dtype[dtype] = CaseTensors(case, CPU, dtype, symmetries=True)
    return by_dtype[dtype]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("one", CONTESTANTS.values(), ids=lambda one: one.name)
def test_every_optimizer_matches_its_formula(
    by_dtype: dict[torch.dtype, CaseTensors], small: Callable[[], Case], one: Contestant, momentum: float
) -> None:
    reason = one.missing(CPU, torch.float32)
    if reason:
        pytest.skip(reason)
    assert error_of(one, made(by_dtype, small(), torch.float32), momentum) < 1e-5


@pytest.mark.parametrize("name", ["sm-reference", "un-reference", "full-reference"])
def test_ours_pass_in_bfloat16(
    by_dtype: dict[torch.dtype, CaseTensors], small: Callable[[], Case], name: str
) -> None:
    assert error_of(CONTESTANTS[name], made(by_dtype, small(), torch.bfloat16), 0.9) < 0.03


def test_a_wrong_one_does_not_pass(
    by_dtype: dict[torch.dtype, CaseTensors], small: Callable[[], Case]
) -> None:
    error = error_of(WRONG, made(by_dtype, small(), torch.float32), 0.9)
    assert error == pytest.approx(1e-3, rel=0.3)
    assert not passes(error, torch.float32)


def test_large_tensors_are_compared_from_the_first_to_the_last_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "COMPARED_WHOLE", 100)
    case = Case(name="large", title="large", weights=(Weight((70, 3)), Weight((4, 90), "columns")))
    tensors = CaseTensors(case, CPU, torch.float32, symmetries=False)
    assert error_of(CONTESTANTS["sm-reference"], tensors, 0.9) < 1e-5
    assert not passes(error_of(WRONG, tensors, 0.9), torch.float32)


def test_what_is_not_a_number_does_not_pass() -> None:
    assert not passes(math.nan, torch.float32)


def test_a_missing_package_is_a_reason() -> None:
    assert ABSENT.missing(CPU, torch.float32) == "not installed: pip install no-such-package"
    assert not RAISING.missing(CPU, torch.float32)


class _Tied(nn.Module):
    """An embedding that is the output map too, and a parameter without entries."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(7, 4), nn.LayerNorm(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.empty = nn.Parameter(torch.zeros(0, 3))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(tokens))) + self.empty.sum()


@pytest.mark.parametrize("name", ["sgd-fused", "un-reference", "full-reference", "full-adamw"])
def test_tied_and_empty_parameters_are_compared_once_or_not(name: str) -> None:
    case = case_of("tied", Example(_Tied(), (torch.randint(7, (2, 3)),)))
    tensors = CaseTensors(case, CPU, torch.float32, symmetries=True)
    assert [pair.parameter.numel() for pair in tensors.pairs] == [28, 4, 4]
    assert error_of(CONTESTANTS[name], tensors, 0.9) < 1e-5
