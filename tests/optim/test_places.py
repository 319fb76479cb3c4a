"""Where tensors lie: moved, missing and otherwise ordered ones are noticed, by one call or one by one."""

import pytest
import torch
from torch import Tensor

from symoptim.optim import places
from symoptim.optim.places import Orders, Places


def compared(tensors: list[Tensor], addresses: list[int], indices: list[int]) -> bool:
    """What a build of torch with CUDA has, and how it answers to what is no tensor."""
    if not all(isinstance(tensors[index], Tensor) for index in indices):
        raise RuntimeError("Unable to cast Python instance of type <class 'NoneType'> to C++ type")
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)


@pytest.fixture(params=[None, compared], ids=["one by one", "one call"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are asked in every way there is."""
    monkeypatch.setattr(places, "_compared", request.param)


def tensors() -> list[Tensor]:
    return [torch.zeros(2, 3), torch.zeros(4), torch.zeros(3, 2, 2).permute(2, 0, 1)]


def test_tensors_that_stay_are_where_they_were() -> None:
    some = tensors()
    assert Places(some).hold(some)
    assert Orders(some).hold(some)


@pytest.mark.parametrize("index", range(3))
def test_one_that_has_moved_is_noticed(index: int) -> None:
    some = tensors()
    noted = Places(some)
    some[index].data = some[index].clone()
    assert not noted.hold(some)
    assert noted.now(some) == [one.data_ptr() for one in some]


@pytest.mark.parametrize(
    "instead", [None, torch.eye(2).to_sparse(), "a word"], ids=["none", "sparse", "word"]
)
def test_what_has_no_address_is_not_where_a_tensor_was(instead: object) -> None:
    some: list[object] = list(tensors())
    noted = Places(tensors())
    some[1] = instead
    assert not noted.hold(some)


@pytest.mark.parametrize("index", [0, 2])
def test_one_whose_entries_are_in_another_order_is_noticed(index: int) -> None:
    some = tensors()
    noted_places, noted_orders = Places(some), Orders(some)
    some[index].data = some[index].transpose(0, 1)
    assert noted_places.hold(some)
    assert not noted_orders.hold(some)
