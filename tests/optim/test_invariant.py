import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, AdamW, Optimizer

from symoptim import ScaledSGD, UnitNormSGD, invariant, param_groups
from symoptim.errors import GradientError, OptionError, ZeroFilterWarning
from symoptim.optim.invariant import REFUSED, Reparametrized, reparametrize
from tests.support.trajectories import batches, network

WRAPPED: dict[str, dict[str, float]] = {
    "SGD": {"lr": 1e-3, "momentum": 0.9},
    "Adam": {"lr": 1e-3},
    "AdamW": {"lr": 1e-3, "weight_decay": 0.1},
    "NAdam": {"lr": 1e-3},
    "RAdam": {"lr": 1e-3},
    "RMSprop": {"lr": 1e-3},
    "Adagrad": {"lr": 1e-2},
    "Adadelta": {"lr": 1.0},
    "Adamax": {"lr": 1e-3},
    "Rprop": {"lr": 1e-3},
    "Adafactor": {"lr": 1e-2},
}


def two_ends(make: Callable[[nn.Module], Optimizer], steps: int = 30) -> tuple[Tensor, Tensor]:
    """Scores after training from two points of an orbit that are a factor 1e6 apart."""
    scores = []
    for rescaled in (False, True):
        model = network(1, 3)
        if rescaled:
            model.rescale_(model.random_scales(seed=4, low=1e-3, high=1e3))
        optimizer = make(model)
        for images, labels in batches(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels, reduction="sum").backward()
            optimizer.step()
        scores.append(model(images).detach())
    return scores[0], scores[1]


@pytest.mark.parametrize("name", WRAPPED)
def test_training_in_the_chart_does_not_depend_on_the_scaling(name: str) -> None:
    wrapped = getattr(torch.optim, name)
    one, other = two_ends(lambda model: invariant(wrapped, param_groups(model), **WRAPPED[name]))
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", WRAPPED)
def test_training_outside_the_chart_does(name: str) -> None:
    wrapped = getattr(torch.optim, name)
    one, other = two_ends(lambda model: wrapped(model.parameters(), **WRAPPED[name]))
    assert not torch.allclose(one, other, rtol=1e-2, atol=1e-2)


def orthogonalized(
    gradient: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Muon's Newton-Schulz iteration in the precision of the gradient."""
    a, b, c = coefficients
    x = gradient / gradient.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_in_the_chart_does_not_depend_on_the_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64: torch iterates in bfloat16, which rounds, and which not every CPU can multiply."""
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", orthogonalized)
    one, other = two_ends(lambda model: invariant(torch.optim.Muon, param_groups(model), lr=1e-2))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    one, other = two_ends(lambda model: torch.optim.Muon(model.parameters(), lr=1e-2))
    assert not torch.allclose(one, other, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_without_momentum_in_the_chart_is_scaled_sgd(decay: float) -> None:
    """L2 in the chart is decoupled decay outside it."""
    one, other = network(2, 3), network(2, 3)
    charted = invariant(SGD, param_groups(one)[:2], lr=1e-3, weight_decay=decay)
    scaled = ScaledSGD(param_groups(other)[:2], lr=1e-3, weight_decay=decay)
    for model, optimizer in ((one, charted), (other, scaled)):
        for images, labels in batches(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels, reduction="sum").backward()
            optimizer.step()
    torch.testing.assert_close(list(one.parameters()), list(other.parameters()), rtol=1e-11, atol=1e-12)


def test_result_is_an_optimizer_of_the_wrapped_class() -> None:
    optimizer = invariant(AdamW, [nn.Parameter(torch.ones(2, 2))], lr=0.1, amsgrad=True)
    assert isinstance(optimizer, AdamW)
    assert type(optimizer).__name__ == "InvariantAdamW"
    assert type(pickle.loads(pickle.dumps(optimizer))) is type(optimizer)


@pytest.mark.parametrize("refused", [*REFUSED, ScaledSGD, UnitNormSGD])
def test_optimizers_that_cannot_be_served_are_refused_with_the_reason(refused: type[Optimizer]) -> None:
    with pytest.raises(OptionError, match=f"cannot serve {refused.__name__}: "):
        invariant(refused, [nn.Parameter(torch.ones(2, 2))])


def test_the_refusal_of_lbfgs_says_why() -> None:
    with pytest.raises(OptionError, match="weights of different steps"):
        invariant(LBFGS, [nn.Parameter(torch.ones(2, 2))])


def test_an_optimizer_that_must_call_the_closure_is_refused() -> None:
    class Search(SGD):
        def step(self, closure: Callable[[], float]) -> float:
            return closure()

    with pytest.raises(OptionError, match="cannot serve Search: its step calls the closure itself"):
        invariant(Search, [nn.Parameter(torch.ones(2, 2))])


@pytest.mark.parametrize("wrong", ["AdamW", nn.Linear, None])
def test_what_is_no_optimizer_class_is_refused(wrong: object) -> None:
    with pytest.raises(OptionError, match=r"takes a class such as torch.optim.AdamW, got"):
        invariant(wrong, [nn.Parameter(torch.ones(2, 2))])


def test_arguments_in_the_wrong_order_are_refused_in_a_few_words() -> None:
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(50)])
    for wrong in (model, list(model.parameters())):
        with pytest.raises(
            OptionError, match=r"got .*: write invariant\(torch\.optim\.AdamW, params"
        ) as refused:
            invariant(wrong, AdamW)
        assert len(str(refused.value)) < 1500


def test_a_charted_class_is_not_charted_again() -> None:
    with pytest.raises(OptionError, match="in the chart already"):
        invariant(reparametrize(SGD, Reparametrized), [nn.Parameter(torch.ones(2, 2))])


def test_a_differentiable_chart_is_refused() -> None:
    with pytest.raises(OptionError, match="no differentiable=True"):
        invariant(SGD, [nn.Parameter(torch.ones(2, 2))], differentiable=True)


def test_negative_rates_are_refused() -> None:
    for wrong in (-1, "0.1"):
        with pytest.raises(OptionError, match="lr must be"):
            invariant(SGD, [nn.Parameter(torch.ones(2, 2))], lr=wrong)
    with pytest.raises(OptionError, match="lr must be a finite number >= 0, got nan"):
        invariant(SGD, [{"params": [nn.Parameter(torch.ones(2, 2))], "lr": float("nan")}])


def test_zero_filters_warn_and_stay() -> None:
    weight = nn.Parameter(torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    with pytest.warns(ZeroFilterWarning, match=r"rows without a direction \(0; zero") as seen:
        optimizer = invariant(AdamW, [weight], lr=0.1)
    assert seen[0].filename == __file__
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert weight[0].tolist() == [0.0, 0.0]
    assert weight.isfinite().all()


def test_zero_columns_warn_and_zeros_of_plain_groups_do_not() -> None:
    weight, zeros = nn.Parameter(torch.tensor([[1.0, 0.0], [1.0, 0.0]])), nn.Parameter(torch.zeros(2, 2))
    groups = [{"params": [zeros], "geometry": "plain"}, {"params": [weight], "geometry": "columns"}]
    with pytest.warns(ZeroFilterWarning, match=r"columns without a direction \(1; zero") as seen:
        invariant(AdamW, groups, lr=0.1)
    assert len(seen) == 1


def test_a_step_that_fails_inside_the_wrapped_optimizer_restores_weights_and_gradients() -> None:
    class Failing(SGD):
        def step(self, closure: None = None) -> None:
            self.param_groups[0]["params"][0].zero_()
            raise GradientError("no")

    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    weight.grad = torch.ones(1, 2)
    before, gradient = weight.detach().clone(), weight.grad
    optimizer = invariant(Failing, [weight], lr=0.1)
    with pytest.raises(GradientError):
        optimizer.step()
    assert torch.equal(weight, before)
    assert weight.grad is gradient


def test_gradients_of_plain_groups_are_untouched_where_torch_writes_to_them() -> None:
    options = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}
    changed = []
    for make in (SGD, lambda *args, **kwargs: invariant(SGD, *args, **kwargs)):
        weight = nn.Parameter(torch.ones(2, 2))
        optimizer = make([{"params": [weight], "geometry": "plain"}], **options)
        for _ in range(2):
            weight.grad = torch.ones(2, 2)
            optimizer.step()
        changed.append(not torch.equal(weight.grad, torch.ones(2, 2)))
    assert not changed[1]
    if not changed[0]:
        pytest.skip("this torch leaves gradients alone too: nothing to protect them from")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_groups_are_stepped_bit_for_bit_as_without_the_chart(dtype: torch.dtype) -> None:
    one, other = nn.Parameter(torch.randn(50, 50).to(dtype)), nn.Parameter(torch.empty(0))
    other.data = one.data.clone()
    charted = invariant(SGD, [{"params": [one], "geometry": "plain"}], lr=0.1)
    plain = SGD([other], lr=0.1)
    for _ in range(5):
        one.grad = torch.randn(50, 50).to(dtype)
        other.grad = one.grad.clone()
        charted.step()
        plain.step()
    assert torch.equal(one, other)


@pytest.mark.parametrize("size", [1e-4, 300.0])
def test_norms_of_short_types_neither_vanish_nor_overflow(size: float) -> None:
    short = nn.Parameter(torch.full((1, 4), size, dtype=torch.float16))
    full = nn.Parameter(torch.full((1, 4), size))
    for weight in (short, full):
        optimizer = invariant(SGD, [weight], lr=0.1)
        weight.grad = torch.full((1, 4), 0.1 / size, dtype=weight.dtype)
        optimizer.step()
    assert (full < 0.99 * size).all()
    torch.testing.assert_close(short.float(), full, rtol=2e-2, atol=1e-6)


def test_an_optimizer_without_a_rate_is_served() -> None:
    class Halving(Optimizer):
        def __init__(self, params: list[nn.Parameter]) -> None:
            super().__init__(params, {})

        @torch.no_grad()
        def step(self, closure: None = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.5)

    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    weight.grad = torch.ones(1, 2)
    invariant(Halving, [weight]).step()
    torch.testing.assert_close(weight.detach(), torch.tensor([[1.5, 2.0]]))


def test_groups_given_are_not_written_to() -> None:
    groups = [{"params": [nn.Parameter(torch.ones(2, 2))]}]
    before = copy.copy(groups[0])
    invariant(SGD, groups, lr=0.1)
    assert groups[0] == before
