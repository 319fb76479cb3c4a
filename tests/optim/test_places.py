"""Where tensors lie and how: what has moved or changed is noticed, by one call or one by one."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from symoptim.optim import places
from symoptim.optim.places import Forms, Places, has_memory


def compared(tensors: list[Tensor], addresses: list[int], indices: list[int]) -> bool:
    """What a build of torch with CUDA has."""
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)


@pytest.fixture(
    params=[None, compared, *([places._compared] if places._compared else [])],
    ids=["one by one", "one call", "torch's call"][: 3 if places._compared else 2],
    autouse=True,
)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are asked in every way there is."""
    monkeypatch.setattr(places, "_compared", request.param)
    if request.param is None:
        monkeypatch.setattr(places, "_guards", None)


def tensors() -> list[Tensor]:
    return [nn.Parameter(torch.zeros(4, 4)), torch.zeros(4), torch.zeros(3, 2, 2).permute(2, 0, 1)]


def test_tensors_that_stay_are_where_they_were_and_as_they_were() -> None:
    some = tensors()
    assert Places(some).hold(some)
    assert Forms(some).hold(some)


@pytest.mark.parametrize("index", range(3))
def test_one_that_has_moved_is_noticed_and_as_it_was(index: int) -> None:
    some = tensors()
    noted, forms = Places(some), Forms(some)
    some[index].data = some[index].detach().clone()
    assert not noted.hold(some)
    assert forms.hold(some)


@pytest.mark.parametrize(
    "change",
    {
        "transposed": lambda some: some[0].t_(),
        "cut": lambda some: setattr(some[0], "data", some[0].data[:2]),
        "viewed": lambda some: setattr(some[0], "data", some[0].data.view(2, 8)),
        "with gaps": lambda some: setattr(some[1], "data", torch.zeros(8)[::2]),
        "permuted": lambda some: setattr(some[2], "data", some[2].data.transpose(0, 1)),
        "none": lambda some: some.__setitem__(1, None),
        "sparse": lambda some: some.__setitem__(1, torch.eye(2).to_sparse()),
        "a word": lambda some: some.__setitem__(1, "word"),
        "in another precision": lambda some: some.__setitem__(1, some[1].double()),
        "without memory of its own": lambda some: some.__setitem__(1, TwoTensor(some[1], some[1])),
        "negated": lambda some: some.__setitem__(1, torch.zeros(4, dtype=torch.complex64).conj().imag),
    }.values(),
)
@torch.no_grad()
def test_one_that_is_otherwise_is_noticed(change) -> None:
    some = tensors()
    noted = Forms(some)
    change(some)
    assert not noted.hold(some)


def test_forms_are_the_same_under_autocast_and_when_no_gradient_is_wanted() -> None:
    some = tensors()
    noted = Forms(some)
    some[0].requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        assert noted.hold(some)


def test_memory_that_was_freed_is_noticed() -> None:
    some = [*tensors(), torch.zeros(0)]
    assert all(map(has_memory, some))
    some[1].untyped_storage().resize_(0)
    assert [has_memory(one) for one in some] == [True, False, True, True]
