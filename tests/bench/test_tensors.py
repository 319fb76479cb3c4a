from collections.abc import Callable

import pytest
import torch

from symoptim.bench import tensors as module
from symoptim.bench.cases import Case, Weight
from symoptim.bench.tensors import CaseTensors
from symoptim.errors import OptionError
from symoptim.geometry.filters import inner, norm

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_have_unit_norm_and_gradients_are_orthogonal_where_asked(
    small: Callable[[], Case], dtype: torch.dtype
) -> None:
    tensors = CaseTensors(small(), CPU, dtype, symmetries=False)
    tensors.fill(unit=True, tangent=True)
    tolerance = 8 * torch.finfo(dtype).eps
    for pair in tensors.pairs:
        weights, gradient = pair.parameter.detach().float(), pair.gradient.float()
        if pair.has_rows:
            torch.testing.assert_close(
                norm(weights, pair.over), torch.ones(8, 1, 1, 1), atol=tolerance, rtol=0
            )
            assert inner(weights, gradient, pair.over).abs().max() < tolerance
        else:
            assert inner(weights, gradient, pair.over).abs().max() > 0.1


def test_norms_differ_where_not_asked_for_unit(small: Callable[[], Case]) -> None:
    tensors = CaseTensors(small(), CPU, torch.float32, symmetries=False)
    tensors.fill(unit=False, tangent=False)
    rows = norm(tensors.pairs[0].parameter.detach(), tensors.pairs[0].over).flatten()
    assert rows.min() >= 0.5
    assert rows.max() <= 2
    assert len(rows.unique()) == 8


def test_fresh_parameters_share_memory_and_no_two_tensors_are_alike() -> None:
    case = Case(name="two", title="two", weights=(Weight((4, 3, 2, 2)), Weight((4, 3, 2, 2))))
    tensors = CaseTensors(case, CPU, torch.float32, symmetries=False)
    tensors.fill(unit=True, tangent=False)
    one, other = tensors.pairs
    flat = one.new_parameter(flat=True)
    assert flat.shape == (4, 12)
    assert flat.data_ptr() == one.parameter.data_ptr()
    assert flat.grad is not None
    assert flat.grad.data_ptr() == one.gradient.data_ptr()
    assert not torch.equal(one.parameter, other.parameter)


def test_large_tensors_are_filled_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 101)
    case = Case(name="long", title="long", weights=(Weight((50, 41)),))
    tensors = CaseTensors(case, CPU, torch.float32, symmetries=False)
    tensors.fill(unit=True, tangent=False)
    rows = tensors.pairs[0].parameter.detach()
    assert rows.isfinite().all()
    assert len(rows.unique(dim=0)) == 50


def test_every_kind_is_checked_and_all_that_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(name="many", title="many", weights=(Weight((2, 2)),) * 5 + (Weight((9,), "plain"),))
    tensors = CaseTensors(case, CPU, torch.float32, symmetries=False)
    assert len(tensors.checked_pairs()) == 6
    monkeypatch.setattr(module, "CHECKED_ELEMENTS", 8)
    assert [len(pair.weight.shape) for pair in tensors.checked_pairs()] == [2, 2, 1]


def test_symmetries_are_of_networks_only() -> None:
    tensors = CaseTensors(
        Case(name="a", title="a matrix", weights=(Weight((2, 2)),)), CPU, torch.float32, symmetries=True
    )
    with pytest.raises(OptionError, match="a matrix is no network"):
        tensors.network()
