"""Checkpoints of version 0.1 are loaded, and training goes on from them as it did there."""

import pytest
import torch

from tests.support.checkpoints import DTYPES, KEPT, MAKERS, STEPS, network, step

ROUNDING = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 2**-7}
"""Sums are added up in another order on another processor."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MAKERS)
def test_training_goes_on_from_an_old_checkpoint(name: str, dtype: str) -> None:
    saved = torch.load(KEPT / f"{name}_{dtype}.pt", weights_only=True)
    model = network(DTYPES[dtype])
    optimizer = MAKERS[name](model)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for number in range(STEPS, 2 * STEPS):
        step(model, optimizer, number)
    assert_close = torch.testing.assert_close
    after = {key: value for key, value in model.state_dict().items() if key != "1.num_batches_tracked"}
    expected = {key: saved["after"][key] for key in after}
    assert_close(after, expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    without_state = network(DTYPES[dtype])
    without_state.load_state_dict(saved["model"])
    moved = [not torch.equal(saved["after"][key], value) for key, value in without_state.named_parameters()]
    assert all(moved)  # or the test could not fail
