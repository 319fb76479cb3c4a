import pytest
import torch

from symoptim.geometry import tensors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_types_are_updated_in_float32(dtype: torch.dtype) -> None:
    assert tensors.update_dtype(dtype) == torch.float32
