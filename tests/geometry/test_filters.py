import pytest
import torch

from symoptim.geometry import filters

BATCHES = [(), (1,), (5,), (2, 3), (0,)]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 0), ((4, 3), 1), ((4, 3, 2, 2), 0), ((4, 3, 2, 2), 1)])
def test_batched_norms_equal_looped_ones(batch: tuple[int, ...], shape: tuple[int, ...], axis: int) -> None:
    w = torch.randn(*batch, *shape, dtype=torch.float64)
    batched = filters.squared_norm(w, filters.filter_axes(len(shape), axis))
    flat = w.reshape(-1, *shape)
    for one, of_batch in zip(flat, batched.reshape(-1, *batched.shape[len(batch) :]), strict=True):
        literal = torch.stack([part.square().sum() for part in one.unbind(axis)])
        torch.testing.assert_close(of_batch.flatten(), literal)


def test_filters_of_a_transposed_convolution_are_counted_by_axis_1() -> None:
    w = torch.randn(3, 5, 2, 2)
    assert filters.norm(w, filters.filter_axes(4, 1)).shape == (1, 5, 1, 1)


def test_norms_of_short_types_are_judged_in_float32() -> None:
    row = torch.full((1, 1000), 0.0316, dtype=torch.bfloat16)
    assert filters.has_unit_norm(row).all()
    assert not filters.lacks_direction(torch.full((1, 2), 1e-4, dtype=torch.float16)).any()
