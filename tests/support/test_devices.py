from typing import Any

import pytest
import torch

from symoptim.errors import OptionError
from symoptim.support.devices import describe_device, device_named, full_float32, tuned_convolutions
from symoptim.support.seeds import derive_seed, seeded


def test_seeds_differ_by_every_word_and_fit_a_signed_integer() -> None:
    seeds = [derive_seed(a, b) for a in range(20) for b in ("weights", "split", 1, 11)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_derived_seeds_stay_what_they_are() -> None:
    assert derive_seed(0, "full", 3) == 5247994336487295277


def test_seeded_draws_repeat_and_leave_the_callers_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded(1):
        first = torch.rand(3)
    assert torch.equal(torch.rand(2), expected)
    with seeded(1):
        assert torch.equal(torch.rand(3), first)


def test_precision_is_full_inside_and_restored_outside() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with full_float32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_precision_is_full_inside_where_it_was_set_for_one_backend() -> None:
    matmul: Any = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has one precision for all backends")
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        with full_float32():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def test_what_else_is_set_of_convolutions_stays_inside() -> None:
    cudnn = torch.backends.cudnn
    with cudnn.flags(enabled=True, deterministic=True, benchmark=True):
        for one in (full_float32, tuned_convolutions):
            with one():
                assert (cudnn.deterministic, cudnn.benchmark) == (True, True)


def test_convolutions_are_tuned_inside_and_left_alone_outside() -> None:
    cudnn = torch.backends.cudnn
    for before in (False, True):
        with cudnn.flags(enabled=True, benchmark=before, allow_tf32=True):
            with tuned_convolutions():
                assert (cudnn.benchmark, cudnn.allow_tf32) == (True, False)
            assert (cudnn.benchmark, cudnn.allow_tf32) == (before, True)


def test_the_name_of_a_cpu_tells_its_kind_and_its_threads() -> None:
    assert describe_device(torch.device("cpu")).endswith(f", {torch.get_num_threads()} thread(s)")


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "mps", "meta"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"device '{name}' cannot be used here"):
        device_named(name)
