"""Has a tensor moved or changed form? Whatever happens to parameters, state and gradients is noticed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from symoptim import ScaledSGD
from symoptim.optim.tensor_snapshot import Change, TensorSnapshot, form_of, has_memory


def tensors() -> list[Any]:
    """Two parameters with gradients, and a buffer of each."""
    some: list[Any] = [nn.Parameter(torch.zeros(4, 4)), nn.Parameter(torch.zeros(3, 2, 2).permute(2, 0, 1))]
    for parameter in some:
        parameter.grad = torch.zeros_like(parameter)
    return [*some, *(torch.zeros_like(parameter.detach()) for parameter in some)]


def snapshot(some: list[Any]) -> TensorSnapshot:
    return TensorSnapshot(some[:2], some[2:])


def change(seen: TensorSnapshot, some: list[Any]) -> Change:
    return seen.change(some[:2], some[2:])


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


def test_tensors_that_stay_have_not_changed() -> None:
    some = tensors()
    seen = snapshot(some)
    assert [change(seen, some) for _ in range(3)] == [Change.NONE] * 3
    assert seen.gradient_addresses == [some[0].grad.data_ptr(), some[1].grad.data_ptr()]


@pytest.mark.parametrize("place", range(4))
def test_a_tensor_that_was_moved_is_noticed(place: int) -> None:
    some = tensors()
    seen = snapshot(some)
    move(some, place)
    assert change(seen, some) is Change.OTHER


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("what", FORMS)
def test_a_tensor_that_lies_otherwise_is_noticed(what: str, place: int) -> None:
    some = tensors()
    seen = snapshot(some)
    FORMS[what](some, place)
    assert change(seen, some) is Change.OTHER


@pytest.mark.parametrize("place", [2, 3])
@pytest.mark.parametrize("what", REPLACED)
def test_what_is_no_such_tensor_is_noticed(what: str, place: int) -> None:
    some = tensors()
    seen = snapshot(some)
    REPLACED[what](some, place)
    assert change(seen, some) is Change.OTHER


@pytest.mark.parametrize("place", range(2))
def test_gradients_of_the_same_form_may_be_anywhere_and_are_followed(place: int) -> None:
    some = tensors()
    seen, before = snapshot(some), some[place].grad
    some[place].grad = before.clone()
    assert change(seen, some) is Change.GRADIENTS
    assert seen.gradient_addresses == [some[0].grad.data_ptr(), some[1].grad.data_ptr()]
    assert change(seen, some) is Change.NONE
    some[place].grad = before
    assert change(seen, some) is Change.GRADIENTS


OTHERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda gradient: None,
    "in other order": lambda gradient: gradient.transpose(0, 1).contiguous().transpose(0, 1),
    "sparse": lambda gradient: gradient.to_sparse(),
    "two in one": lambda gradient: TwoTensor(gradient, gradient),
    "negated": lambda gradient: torch.zeros_like(gradient, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("other", OTHERS)
def test_gradients_of_another_form_are_noticed(other: str, place: int) -> None:
    some = tensors()
    seen = snapshot(some)
    some[place].grad = OTHERS[other](some[place].grad)
    assert change(seen, some) is Change.OTHER


@pytest.mark.parametrize("start", [0, 3], ids=["from its start", "from within"])
def test_a_gradient_whose_memory_was_freed_is_noticed(start: int) -> None:
    some = tensors()
    some[0].grad = torch.zeros(20)[start : start + 16].view(4, 4)
    seen = snapshot(some)
    some[0].grad.untyped_storage().resize_(0)
    assert change(seen, some) is Change.OTHER


def test_modes_that_ask_about_tensors_change_nothing() -> None:
    some = tensors()
    seen = snapshot(some)
    with torch.device("meta"):
        assert change(seen, some) is Change.NONE
        assert torch.zeros(1).is_meta, "the mode is still on"


def test_gradients_without_entries_need_no_memory() -> None:
    some = [nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.zeros(2))]
    for parameter in some:
        parameter.grad = torch.zeros_like(parameter)
    seen = snapshot(some)
    assert change(seen, some) is Change.NONE
    some[1].grad = torch.zeros(2)
    assert change(seen, some) is Change.GRADIENTS


def test_a_tensor_swapped_for_another_behind_the_same_object_is_noticed() -> None:
    some = tensors()
    seen = snapshot(some)
    torch.utils.swap_tensors(some[2], torch.ones(4, 4))
    assert change(seen, some) is Change.OTHER


def test_memory_shared_until_written_to_is_not_taken_for_ones_own() -> None:
    some = tensors()
    seen, original = snapshot(some), some[2].data
    some[2].data = torch._lazy_clone(original)
    assert change(seen, some) is Change.OTHER
    assert some[2].data_ptr() != original.data_ptr()


class Borrower(nn.Parameter):
    """A parameter whose gradient is another's."""

    lender: torch.Tensor

    @property
    def grad(self) -> torch.Tensor | None:  # type: ignore[override]
        return self.lender.grad


def test_the_gradient_is_what_a_parameter_of_another_class_says_it_is() -> None:
    lender, borrower = nn.Parameter(torch.zeros(3)), Borrower(torch.zeros(3))
    lender.grad, borrower.lender = torch.ones(3), lender
    seen = TensorSnapshot([borrower], [])
    assert seen.gradient_addresses == [lender.grad.data_ptr()]
    lender.grad = torch.ones(3)
    assert seen.change([borrower], []) is Change.GRADIENTS


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["moved", *FORMS]), st.integers(0, 3), st.booleans()), max_size=3))
def test_any_changes_are_those_that_addresses_and_forms_say(changes: list[tuple[str, int, bool]]) -> None:
    some = tensors()
    seen = snapshot(some)

    def all_of(some: list[Any]) -> tuple[list[object], list[object], list[int], list[int]]:
        gradients = [parameter.grad for parameter in some[:2]]
        forms = [*map(form_of, some)], [*map(form_of, gradients)]
        return *forms, [one.data_ptr() for one in some], [one.data_ptr() for one in gradients]

    before = all_of(some)
    for what, place, of_gradient in changes:
        act = FORMS.get(what, move)
        if of_gradient and place < 2:
            act([some[place].grad], 0)
        else:
            act(some, place)
        now = all_of(some)
        expected = Change.NONE if now == before else Change.GRADIENTS
        expected = expected if now[:3] == before[:3] else Change.OTHER
        assert change(seen, some) is expected
        if expected is Change.OTHER:
            return
        assert seen.gradient_addresses == now[3]
        before = now


def test_memory_that_was_freed_is_noticed() -> None:
    some = [*tensors()[2:], torch.zeros(0)]
    assert all(map(has_memory, some))
    some[1].untyped_storage().resize_(0)
    assert [has_memory(one) for one in some] == [True, False, True]


def test_forms_are_the_same_under_autocast_and_when_no_gradient_is_wanted() -> None:
    some = tensors()
    seen, forms = snapshot(some), [*map(form_of, some)]
    some[0].requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        assert change(seen, some) is Change.NONE
        assert [*map(form_of, some)] == forms


def in_the_same_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Half as wide a tensor where another one is: what an allocator may give after one was freed."""
    made = torch.empty(0, dtype=torch.bfloat16)
    return made.set_(tensor.untyped_storage(), 0, tensor.shape, tensor.stride())


SAME_ADDRESS: dict[str, Callable[[list[Any]], None]] = {
    "a buffer of another precision": lambda some: some.__setitem__(2, in_the_same_memory(some[2])),
    "a parameter of another precision": lambda some: setattr(
        some[0], "data", in_the_same_memory(some[0].data)
    ),
    "a negated gradient": lambda some: setattr(some[0], "grad", torch._neg_view(some[0].grad)),
    "a buffer of another shape": lambda some: some.__setitem__(2, some[2].as_strided((2, 4), (4, 1))),
}


@pytest.mark.parametrize("what", SAME_ADDRESS)
def test_another_tensor_at_the_same_address_is_noticed(what: str) -> None:
    some = tensors()
    seen, addresses = snapshot(some), [one.data_ptr() for one in some]
    SAME_ADDRESS[what](some)
    assert [one.data_ptr() for one in some] == addresses
    assert change(seen, some) is Change.OTHER


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weights_that_change_their_precision_between_steps_are_stepped_as_they_are(momentum: float) -> None:
    stepped = []
    for fused in (None, False):
        weight = nn.Parameter(torch.arange(1.0, 65).reshape(8, 8) / 64)
        optimizer = ScaledSGD([weight], lr=0.1, momentum=momentum, fused=fused)
        weight.grad = torch.ones(8, 8)
        optimizer.step()
        optimizer.state.clear()
        weight.grad, weight.data = None, in_the_same_memory(weight.data).copy_(weight.detach().bfloat16())
        weight.grad = torch.ones(8, 8, dtype=torch.bfloat16)
        optimizer.step()
        stepped.append(weight.detach().clone())
    torch.testing.assert_close(*stepped)
