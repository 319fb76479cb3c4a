"""Certificates of models as people write them: second ways to a weight, chance, types, and what fails."""

import copy
import dataclasses
import functools
import math
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from symoptim.symmetry.certify import Certificate, certify
from symoptim.symmetry.copies import copied
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import Moved, SymmetrySpec
from tests.support.sampling import one_in

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


class TwoLayers(nn.Module):
    """Two layers; something happens to the hidden features and to the output."""

    def __init__(
        self,
        hidden: Callable[[Tensor], Tensor] = torch.relu,
        output: Callable[[Tensor], Any] = lambda y: y,
        extra: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.hidden, self.output, self.extra = hidden, output, extra

    def forward(self, x: Tensor) -> Any:
        y = self.output(self.second(self.hidden(self.first(x))))
        return (y, self.extra(x)) if self.extra is not None else y


@functools.cache
def plain_group(hidden: Callable[[Tensor], Tensor] = torch.relu) -> SymmetrySpec:
    """The group of two layers and nothing else: four rescalings."""
    spec = discover(TwoLayers(hidden), (X,))
    assert len(spec) == 4
    return spec


def tried(model: nn.Module, spec: SymmetrySpec | None = None, **options: Any) -> Certificate:
    return certify(spec or plain_group(), model, (X,), **options)


def test_two_layers_hold() -> None:
    certificate = tried(TwoLayers())
    assert certificate.holds
    assert certificate.exact
    assert certificate.tried == ("the example", "other values", "length 11 for 6", "length 5 for 6")
    assert str(certificate).startswith("holds: ")
    assert "tried on 4 inputs" in str(certificate)


# A second way to the first layer's weight: what acts in place changes it there too.


class Held:
    """Holds a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def through_buffer(model: TwoLayers) -> Callable[[Tensor], Tensor]:
    model.register_buffer("again", model.first.weight.detach().view(4, 3), persistent=False)
    return lambda x: x @ model.again.t()


def through_list(model: TwoLayers) -> Callable[[Tensor], Tensor]:
    model.weights = [model.first.weight]
    return lambda x: x @ model.weights[0].t()


def through_attribute(model: TwoLayers) -> Callable[[Tensor], Tensor]:
    model.transposed = model.first.weight.t()
    return lambda x: x @ model.transposed


def through_object(model: TwoLayers) -> Callable[[Tensor], Tensor]:
    model.held = Held(model.first.weight.detach())
    return lambda x: x @ model.held.tensor.t()


def through_closure(model: TwoLayers) -> Callable[[Tensor], Tensor]:
    weight = model.first.weight
    return lambda x: x @ weight.t()


WAYS: dict[str, Callable[[TwoLayers], Callable[[Tensor], Tensor]]] = {
    "a buffer that is a view": through_buffer,
    "a list of parameters": through_list,
    "a transposed attribute": through_attribute,
    "an object that holds it": through_object,
    "a closure": through_closure,
    "a partial function": lambda model: functools.partial(functional.linear, weight=model.first.weight),
}


@pytest.mark.parametrize("way", one_in(2, WAYS))
def test_a_second_way_to_a_weight_is_seen(way: str) -> None:
    model = TwoLayers()
    model.extra = WAYS[way](model)
    certificate = tried(model)
    assert not certificate.holds
    assert certificate.output_error > 1e-2


def test_a_way_that_no_copy_has_is_named() -> None:
    model = TwoLayers()
    weight = model.first.weight

    class Around(TwoLayers):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), x @ weight.t()

    model.__class__ = Around
    certificate = tried(model)
    assert not certificate.holds
    assert "also reads 'first.weight' by a second way" in certificate.reason
    assert str(certificate).startswith("CANNOT BE TRIED: ")


def test_copies_keep_what_is_shared_and_the_model_is_left_alone() -> None:
    model = TwoLayers()
    model.extra = through_closure(model)
    model.tied = nn.Linear(3, 4)
    model.tied.weight = model.first.weight
    other = copied(model, wide=True)
    assert other.tied.weight is other.first.weight
    assert other.extra.__closure__[0].cell_contents is other.first.weight
    assert {one.dtype for one in other.parameters()} == {torch.float64}
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    assert model.extra.__closure__[0].cell_contents is model.first.weight


# Other inputs than the example.


def test_another_way_for_other_values_is_seen() -> None:
    model = TwoLayers(lambda h: torch.tanh(h) if h.isnan().any() or len(h) > 8 else torch.relu(h))
    certificate = tried(model)
    assert not certificate.holds
    assert any("length 11 for 6" in note for note in certificate.notes)
    assert tried(model, draw=False).holds

    class Branching(TwoLayers):
        def forward(self, x: Tensor) -> Any:
            return torch.tanh(self.first(x)) if bool((x < 0).any()) else super().forward(x)

    certificate = certify(plain_group(), Branching(), (X.abs(),))
    assert not certificate.holds
    assert any("other values" in note for note in certificate.notes)


def test_what_was_not_seen_is_said() -> None:
    spec = dataclasses.replace(
        plain_group(), unreached=("experts.1.weight",), paths=("a value decides",), recorded="a reason"
    )
    certificate = tried(TwoLayers(), spec)
    assert certificate.holds
    assert len(certificate.unseen) == 3
    for word in ("not seen: ", "experts.1.weight", "a value decides", "a reason"):
        assert word in str(certificate)


# Chance, and backward passes that are no derivatives.


@pytest.mark.parametrize("draw", [lambda: np.random.rand(), random.random])
def test_chance_of_numpy_and_python_is_the_same_for_both_copies(draw: Callable[[], float]) -> None:
    np.random.seed(3)
    random.seed(3)
    expected = (np.random.rand(), random.random())
    np.random.seed(3)
    random.seed(3)
    certificate = tried(TwoLayers(output=lambda y: y * draw()))
    assert certificate.holds
    assert (np.random.rand(), random.random()) == expected


class Sign(torch.autograd.Function):
    """A sign that is trained straight through."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return torch.sign(h) + 0.5

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0]


def test_a_straight_through_estimator_is_no_false_alarm() -> None:
    spec = discover(TwoLayers(lambda h: torch.sign(h) + 0.5), (X,))
    assert len(spec) == 4
    certificate = tried(TwoLayers(Sign.apply), spec)
    assert certificate.noether_residual > 1e-3
    assert certificate.holds
    assert "not the derivative" in str(certificate)


def test_a_padding_row_is_no_false_alarm() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4, padding_idx=0), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        model[0].weight[0] = 1.0
    tokens = (torch.tensor([[0, 1, 2], [3, 0, 4]]),)
    spec = discover(model, tokens)
    assert len(spec) == 4
    certificate = certify(spec, model, tokens)
    assert certificate.noether_residual > 1e-3
    assert certificate.holds
    assert "padding_idx" in str(certificate)


# What fails in float64, or at all, is a verdict with a reason.


def as_it_is(h: Tensor) -> Tensor:
    assert h.dtype == torch.float32
    return torch.relu(h)


NARROW: dict[str, Callable[[], nn.Module]] = {
    "a check of the type": lambda: TwoLayers(as_it_is),
    "fake quantization": lambda: TwoLayers(
        output=lambda y: torch.fake_quantize_per_channel_affine(
            y, torch.full((2,), 0.1).float(), torch.zeros(2, dtype=torch.int32), 1, -128, 127
        )
    ),
    "grouped matrices": lambda: TwoLayers(
        output=lambda y: functional.grouped_mm(
            functional.pad(y, (0, 6)), torch.ones(1, 8, 8), offs=torch.tensor([len(y)], dtype=torch.int32)
        )
    ),
}


@pytest.mark.parametrize("name", one_in(2, NARROW))
def test_what_has_no_float64_is_tried_in_its_own_precision(name: str) -> None:
    certificate = tried(NARROW[name]())
    assert certificate.holds, certificate
    assert certificate.output_error < 1e-6
    assert "powers of two" in str(certificate)
    wrong = dataclasses.replace(
        plain_group(), tensors={k: v for k, v in plain_group().tensors.items() if k != "first.bias"}
    )
    assert not tried(NARROW[name](), wrong).holds


WIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "made in float32": lambda y: y @ torch.eye(2, dtype=torch.float32),
    "of numpy": lambda y: y @ torch.from_numpy(np.eye(2, dtype=np.float32)),
    "by default": lambda y: y @ torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
    "made anew": lambda y: y @ torch.zeros(2, 2).fill_diagonal_(1.0),
    "to bfloat16 and back": lambda y: (y.bfloat16() @ torch.eye(2).bfloat16()).float(),
}


@pytest.mark.parametrize("name", one_in(2, WIDE))
def test_constants_in_fewer_digits_are_no_obstacle(name: str) -> None:
    certificate = tried(TwoLayers(output=WIDE[name]))
    assert certificate.holds
    assert certificate.output_error < 1e-12
    assert not certificate.notes
    assert torch.get_default_dtype() == torch.float32


def test_an_assertion_that_a_rescaled_copy_breaks_is_a_verdict() -> None:
    def bounded(h: Tensor) -> Tensor:
        assert float(h.detach().abs().max()) < 3, "hidden features are too large"
        return torch.relu(h)

    certificate = tried(TwoLayers(bounded))
    assert not certificate.holds
    assert "AssertionError: hidden features are too large" in str(certificate)


def test_what_nobody_can_copy_is_no_obstacle() -> None:
    model = TwoLayers()
    model.lock = threading.Lock()
    assert tried(model).holds


def test_a_model_that_cannot_be_called_is_a_verdict() -> None:
    certificate = certify(plain_group(), TwoLayers(), (torch.rand(6, 5),))
    assert not certificate.holds
    assert str(certificate).startswith("CANNOT BE TRIED: RuntimeError")


class Checkpointed(nn.Module):
    """Computes its layers once more in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 3))
        self.head, self.reentrant = nn.Linear(3, 2), reentrant

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.layers, x, use_reentrant=self.reentrant)
        return self.head(torch.relu(checkpoint(self.layers, hidden, use_reentrant=self.reentrant)))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_charges_of_checkpointed_layers_are_measured(reentrant: bool) -> None:
    torch.manual_seed(0)
    model, inputs = Checkpointed(reentrant=reentrant), (torch.randn(6, 3),)
    certificate = certify(discover(model, inputs), model, inputs)
    assert certificate.holds
    assert 0 < certificate.noether_residual < 1e-8
    assert not certificate.notes
    # The layers are called twice, with one scale at both ends.
    spec = discover(model.layers, inputs)
    wrong = dataclasses.replace(
        spec, tensors={f"layers.{name}": moved for name, moved in spec.tensors.items() if name != "3.weight"}
    )
    assert not certify(wrong, model, inputs).holds


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_charges_are_measured_where_gradients_are_off(mode: Callable[[], Any]) -> None:
    model, inputs = TwoLayers(), (torch.rand(6, 3),)
    with mode():
        certificate = certify(plain_group(), model, inputs)
    assert certificate.holds
    assert 0 < certificate.noether_residual < 1e-8


def test_charges_that_cannot_be_measured_are_said() -> None:
    certificate = tried(TwoLayers(lambda h: torch.relu(h.detach())))
    assert certificate.holds
    assert math.isnan(certificate.noether_residual)
    assert "charges were not measured of what moves first.weight, first.bias" in str(certificate)
    assert "largest charge" not in str(certificate)


def test_an_example_that_is_left_out_is_said() -> None:
    model, inputs = TwoLayers(), (torch.rand(6, 3),)
    other: Any = (((torch.rand(6, 5),), {}), (inputs, {}))
    certificate = certify(dataclasses.replace(plain_group(), examples=other), model, inputs)
    assert certificate.holds
    assert "example 0 of the group could not be tried (RuntimeError" in str(certificate)


@dataclasses.dataclass
class Batch:
    """Inputs of a class that torch does not know."""

    x: Tensor


class OfBatches(TwoLayers):
    """Takes its input out of a batch."""

    def forward(self, batch: Batch) -> Tensor:
        return super().forward(batch.x)


def test_examples_in_a_class_of_their_own_are_tried() -> None:
    model, first = OfBatches(), (Batch(torch.rand(6, 3)),)
    spec = dataclasses.replace(
        discover(model, first, inputs=[(Batch(torch.rand(4, 3)),)]),
    )
    assert "example 1 of the group" in certify(spec, model, first).tried


class Neighbors(TwoLayers):
    """Sums over neighbors by a sparse matrix."""

    def __init__(self, adjacency: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("adjacency", adjacency)

    def forward(self, x: Tensor, adjacency: Tensor | None = None) -> Tensor:
        found = self.adjacency if adjacency is None else adjacency
        return super().forward(torch.sparse.mm(found, x))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_are_no_obstacle(layout: torch.layout) -> None:
    adjacency = (torch.rand(6, 6) > 0.5).float().to_sparse(layout=layout)
    x = torch.rand(6, 3)
    model = Neighbors(adjacency)
    spec = discover(model, (x,))
    assert "adjacency" not in spec.tensors
    assert certify(spec, model, (x,)).holds
    assert certify(plain_group(), Neighbors(), (x, adjacency)).holds


def test_sparse_gradients_are_no_obstacle() -> None:
    model = nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    inputs = (torch.randint(7, (2, 3)),)
    assert certify(discover(model, inputs), model, inputs).holds


def test_a_default_device_is_no_obstacle() -> None:
    model, inputs = TwoLayers(), (torch.rand(6, 3),)
    with torch.device("meta"):
        certificate = certify(plain_group(), model, inputs)
    assert certificate.holds
    assert "other values" in certificate.tried


def test_a_model_without_values_is_a_verdict() -> None:
    certificate = tried(TwoLayers().to("meta"))
    assert not certificate.holds
    assert "meta device" in certificate.reason


def test_another_mode_is_said() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    certificate = tried(model, discover(copy.deepcopy(model).eval(), (X,)))
    assert "in training mode, and was in evaluation mode" in str(certificate)


def test_a_wrapped_model_is_unwrapped() -> None:
    model = nn.DataParallel(TwoLayers())
    assert tried(model).holds
    assert plain_group().rescale_(model, plain_group().random()) is model


def hooked() -> nn.Module:
    model = TwoLayers()
    with pytest.warns(FutureWarning, match="deprecated"):
        nn.utils.weight_norm(model.first)
    model(X)
    return model


def pruned() -> nn.Module:
    model = TwoLayers()
    prune.random_unstructured(model.first, "weight", amount=0.3)
    model(X)
    return model


@pytest.mark.parametrize("make", [hooked, pruned])
def test_tensors_that_are_no_leaves_are_no_obstacle(make: Callable[[], nn.Module]) -> None:
    model = make()
    before = copy.deepcopy(model.state_dict())
    tensors = dict(plain_group().tensors)
    moved = tensors.pop("first.weight")
    if make is pruned:
        tensors["first.weight_orig"] = moved
    else:
        tensors["first.weight_g"] = Moved((4, 1), tuple(term[:, :1] for term in moved.terms))
    assert tried(model, dataclasses.replace(plain_group(), tensors=tensors)).holds
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


# Running statistics after training.


def test_statistics_that_do_not_follow_are_seen_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    spec = discover(model, (X,))
    forgetful = {name: one for name, one in spec.tensors.items() if name != "0.bias"}
    calls = int(model[1].num_batches_tracked)
    certificate = tried(model, dataclasses.replace(spec, tensors=forgetful))
    assert certificate.output_error < 1e-8 < 1e-2 < certificate.evaluation_error
    assert not certificate.holds
    assert "in training mode only: after .eval()" in str(certificate)
    assert model.training
    assert int(model[1].num_batches_tracked) == calls


# Eps.


class Guarded(nn.Module):
    """A constant that is no guard: all that is left of the features is added to it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.weight = nn.Linear(3, 4), nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return (1e-7 * torch.relu(self.first(x)).mean(0) + 1e-4) @ self.weight


def normalized(eps: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4, eps=eps), nn.Linear(4, 2))


def test_an_eps_that_is_no_guard_does_not_hold() -> None:
    model = normalized(1e-3)
    with torch.no_grad():
        for parameter in model[0].parameters():
            parameter.mul_(1e-2)  # eps is larger than the variance
    certificate = tried(model, discover(model, (X,)))
    assert certificate.without_eps
    assert certificate.eps_error > 0.5
    assert not certificate.holds
    assert "eps is too large for a guard" in str(certificate)
    guarded = Guarded()
    spec = discover(guarded, (X,))
    assert len(spec) == 0 or not tried(guarded, spec).holds


def test_an_ordinary_eps_holds_and_how_much_it_is_felt_is_said() -> None:
    model = normalized(1e-5)
    spec = discover(model, (X,))
    certificate = tried(model, spec)
    assert certificate.holds
    assert not certificate.exact
    assert 1e-8 < certificate.eps_nearby < 1e-3
    assert str(certificate).startswith("holds up to eps: ")
    assert f"with eps removed, largest charge {certificate.noether_residual:.1e}; with eps as it is" in str(
        certificate
    )
    assert not tried(model, spec, eps_tolerance=1e-9).holds
