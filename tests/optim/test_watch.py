"""What happens to the tensors of a table is noticed, whoever looks: C++, calls of torch, or one by one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from symoptim.optim import places
from symoptim.optim.native import Seen, native_look
from symoptim.optim.watch import Asked, Change, Compiled, Watch, watch

Way = Callable[[list[Any], int], Watch]


def compiled(tensors: list[Any], parameters: int) -> Watch:
    look = native_look()
    if look is None:
        pytest.skip("needs a C++ compiler and Python's headers")
    seen = look(tensors, parameters)
    assert seen is not None
    return Compiled(look, Seen(*seen), parameters)


@pytest.fixture(params=["C++", "calls of torch", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Tensors are looked at in every way there is."""
    if request.param == "one by one":
        monkeypatch.setattr(places, "_compared", None)
        monkeypatch.setattr(places, "_guards", None)
    return compiled if request.param == "C++" else Asked


def tensors() -> list[Any]:
    """Two parameters with gradients, and a buffer of each."""
    some: list[Any] = [nn.Parameter(torch.zeros(4, 4)), nn.Parameter(torch.zeros(3, 2, 2).permute(2, 0, 1))]
    for parameter in some:
        parameter.grad = torch.zeros_like(parameter)
    return [*some, *(torch.zeros_like(parameter.detach()) for parameter in some)]


def move(some: list[Any], place: int) -> None:
    some[place].data = some[place].data.clone()


FORMS: dict[str, Callable[[list[Any], int], None]] = {
    "transposed": lambda some, place: setattr(some[place], "data", some[place].data.transpose(0, 1)),
    "cut": lambda some, place: setattr(some[place], "data", some[place].data[:1]),
    "flat": lambda some, place: setattr(some[place], "data", some[place].data.reshape(-1)),
    "with gaps": lambda some, place: setattr(some[place], "data", some[place].data[..., ::2]),
    "in another precision": lambda some, place: setattr(some[place], "data", some[place].data.double()),
}
REPLACED: dict[str, Callable[[list[Any], int], None]] = {
    "a storage": lambda some, place: some.__setitem__(place, some[place].untyped_storage()),
    "a pretender": lambda some, place: some.__setitem__(place, SimpleNamespace(_cdata="a word")),
    "none": lambda some, place: some.__setitem__(place, None),
    "a word": lambda some, place: some.__setitem__(place, "word"),
    "sparse": lambda some, place: some.__setitem__(place, torch.eye(4).to_sparse()),
    "without memory": lambda some, place: some.__setitem__(place, torch.zeros(4, 4, device="meta")),
    "two in one": lambda some, place: some.__setitem__(place, TwoTensor(torch.eye(4), torch.eye(4))),
    "negated": lambda some, place: some.__setitem__(
        place, torch.zeros_like(some[place], dtype=torch.complex64).conj().imag
    ),
}


def test_tensors_that_stay_have_not_changed(way: Way) -> None:
    some = tensors()
    seen = way(some, 2)
    assert [seen.change(some) for _ in range(3)] == [Change.NONE] * 3
    assert seen.gradients == [some[0].grad.data_ptr(), some[1].grad.data_ptr()]


@pytest.mark.parametrize("place", range(4))
def test_a_tensor_that_was_moved_is_noticed(way: Way, place: int) -> None:
    some = tensors()
    seen = way(some, 2)
    move(some, place)
    assert seen.change(some) is Change.OTHER


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("what", FORMS)
def test_a_tensor_that_lies_otherwise_is_noticed(way: Way, what: str, place: int) -> None:
    some = tensors()
    seen = way(some, 2)
    FORMS[what](some, place)
    assert seen.change(some) is Change.OTHER


@pytest.mark.parametrize("place", [2, 3])
@pytest.mark.parametrize("what", REPLACED)
def test_what_is_no_such_tensor_is_noticed(way: Way, what: str, place: int) -> None:
    some = tensors()
    seen = way(some, 2)
    REPLACED[what](some, place)
    assert seen.change(some) is Change.OTHER


@pytest.mark.parametrize("place", range(2))
def test_gradients_of_the_same_form_may_be_anywhere_and_are_followed(way: Way, place: int) -> None:
    some = tensors()
    seen, before = way(some, 2), some[place].grad
    some[place].grad = before.clone()
    assert seen.change(some) is Change.GRADIENTS
    assert seen.gradients == [some[0].grad.data_ptr(), some[1].grad.data_ptr()]
    assert seen.change(some) is Change.NONE
    some[place].grad = before
    assert seen.change(some) is Change.GRADIENTS


OTHERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda gradient: None,
    "in other order": lambda gradient: gradient.transpose(0, 1).contiguous().transpose(0, 1),
    "sparse": lambda gradient: gradient.to_sparse(),
    "two in one": lambda gradient: TwoTensor(gradient, gradient),
    "negated": lambda gradient: torch.zeros_like(gradient, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("other", OTHERS)
def test_gradients_of_another_form_are_noticed(way: Way, other: str, place: int) -> None:
    some = tensors()
    seen = way(some, 2)
    some[place].grad = OTHERS[other](some[place].grad)
    assert seen.change(some) is Change.OTHER


@pytest.mark.parametrize("start", [0, 3], ids=["from its start", "from within"])
def test_a_gradient_whose_memory_was_freed_is_noticed(way: Way, start: int) -> None:
    some = tensors()
    some[0].grad = torch.zeros(20)[start : start + 16].view(4, 4)
    seen = way(some, 2)
    some[0].grad.untyped_storage().resize_(0)
    assert seen.change(some) is Change.OTHER


def test_modes_that_ask_about_tensors_change_nothing(way: Way) -> None:
    some = tensors()
    seen = way(some, 2)
    with torch.device("meta"):
        assert seen.change(some) is Change.NONE
        assert torch.zeros(1).is_meta, "the mode is still on"


def test_gradients_without_entries_need_no_memory(way: Way) -> None:
    some = [nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.zeros(2))]
    for parameter in some:
        parameter.grad = torch.zeros_like(parameter)
    seen = way(some, 2)
    assert seen.change(some) is Change.NONE
    some[1].grad = torch.zeros(2)
    assert seen.change(some) is Change.GRADIENTS


def test_a_tensor_swapped_for_another_behind_the_same_object_is_noticed(way: Way) -> None:
    some = tensors()
    seen = way(some, 2)
    torch.utils.swap_tensors(some[2], torch.ones(4, 4))
    assert seen.change(some) is Change.OTHER


def test_memory_shared_until_written_to_is_not_taken_for_ones_own(way: Way) -> None:
    some = tensors()
    seen, original = way(some, 2), some[2].data
    some[2].data = torch._lazy_clone(original)
    assert seen.change(some) is Change.OTHER
    assert some[2].data_ptr() != original.data_ptr()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["moved", *FORMS]), st.integers(0, 3), st.booleans()), max_size=3))
def test_all_ways_say_the_same_of_any_changes(changes: list[tuple[str, int, bool]]) -> None:
    some = tensors()
    both = compiled(some, 2), Asked(some, 2)
    for what, place, of_gradient in changes:
        change = FORMS.get(what, move)
        if of_gradient and place < 2:
            change([some[place].grad], 0)
        else:
            change(some, place)
        first, second = (one.change(some) for one in both)
        assert first is second
        assert both[0].gradients == both[1].gradients
        if first is Change.OTHER:
            return


def test_tensors_with_a_compiler_are_looked_at_in_cpp_and_others_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(watch(tensors(), 2), Asked if native_look() is None else Compiled)
    monkeypatch.setattr("symoptim.optim.watch.native_look", lambda: None)
    assert isinstance(watch(tensors(), 2), Asked)


class Borrower(nn.Parameter):
    """A parameter whose gradient is another's."""

    lender: torch.Tensor

    @property
    def grad(self) -> torch.Tensor | None:  # type: ignore[override]
        return self.lender.grad


def test_the_gradient_is_what_a_parameter_of_another_class_says_it_is() -> None:
    lender, borrower = nn.Parameter(torch.zeros(3)), Borrower(torch.zeros(3))
    lender.grad, borrower.lender = torch.ones(3), lender
    seen = watch([borrower], 1)
    assert seen.gradients == [lender.grad.data_ptr()]
    lender.grad = torch.ones(3)
    assert seen.change([borrower]) is Change.GRADIENTS
