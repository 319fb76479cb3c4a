"""Version counters of parameters: counted for each, without keeping anything alive."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from symoptim.optim import versions
from symoptim.optim.versions import Versions


@pytest.fixture(params=[versions._held, None], ids=["held", "not held"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a list of C++."""
    monkeypatch.setattr(versions, "_held", request.param)


def test_every_parameter_is_counted_once_and_views_with_it() -> None:
    some = [nn.Parameter(torch.ones(2, 3)), torch.ones(4), torch.ones(0)]
    view = some[1][:2]
    before = [one._version for one in some]
    counted = Versions(some)
    counted.count()
    assert [one._version for one in some] == [version + 1 for version in before]
    assert view._version == some[1]._version
    counted.count()
    assert [one._version for one in some] == [version + 2 for version in before]


def _moved(weight: Tensor) -> None:
    weight.data = weight.data.clone()


def _transposed(weight: Tensor) -> None:
    weight.data = weight.data.T


@pytest.mark.parametrize("change", [_moved, _transposed])
def test_a_parameter_whose_memory_was_replaced_still_is_counted(change: Callable[[Tensor], None]) -> None:
    weight = nn.Parameter(torch.ones(2, 3))
    counted = Versions([weight])
    change(weight)
    before = weight._version
    counted.count()
    assert weight._version == before + 1


def test_neither_parameters_nor_their_memory_are_kept() -> None:
    weight = nn.Parameter(torch.ones(2, 3))
    counted = Versions([weight])
    weight.counted = counted
    gone, memory = weakref.ref(weight), weakref.ref(weight.untyped_storage())
    assert all(counter.untyped_storage().nbytes() == 0 for counter in counted._counters)
    del weight, counted
    gc.collect()
    assert gone() is None
    assert memory() is None


def test_values_and_gradients_stay_as_they_are() -> None:
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.ones(2, 3)
    Versions([weight]).count()
    assert weight.requires_grad
    assert weight.is_leaf
    assert weight.eq(1).all()
    assert weight.grad.eq(1).all()


def test_tensors_of_inference_mode_have_no_counter_and_none_is_missed() -> None:
    with torch.inference_mode():
        weight = torch.ones(2)
    Versions([weight]).count()
    assert weight.eq(1).all()
