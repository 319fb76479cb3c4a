import pytest
import torch

from symoptim.symmetry import tensors
from symoptim.symmetry.tensors import squeezed, unique_rows


@pytest.mark.parametrize("largest", [2**62, 40])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_rows_are_told_apart_as_torch_does_it(
    columns: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "LARGEST", largest)  # numbers that grow too large are numbered anew
    table = torch.randint(-2, 3, (200, columns))
    rows, which = unique_rows(table)
    expected, places = torch.unique(table, dim=0, return_inverse=True)
    assert torch.equal(rows, expected)
    assert torch.equal(which, places)


def test_no_rows_are_no_rows() -> None:
    rows, which = unique_rows(torch.zeros(0, 3, dtype=torch.int64))
    assert rows.shape == (0, 3)
    assert which.shape == (0,)


def test_axes_without_variation_are_squeezed() -> None:
    assert squeezed(torch.tensor([[1, 2], [1, 2]])).tolist() == [[1, 2]]
    assert squeezed(torch.tensor([[1, 2], [1, 3]])).shape == (2, 2)
