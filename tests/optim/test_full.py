"""Training in the full metric: whole runs from two points of an orbit coincide, on networks of every kind."""

import copy
import functools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, AdamW, Optimizer

from symmetry.zoo import caught, group_of
from symoptim import (
    FullMetricSGD,
    Geometric,
    OwnRow,
    PathNorm,
    ScaledSGD,
    SymmetrySpec,
    UnitNormSGD,
    canonicalize_,
    clip_invariant_norm_,
    discover,
    invariant,
    param_groups,
)
from symoptim.errors import CheckpointError, OptionError, SymmetryError

Make = Callable[[nn.Module, SymmetrySpec], Optimizer]
STEPS = 50
THOUSAND = math.log(1e3)
TOLERANCE = 1e-9
ARCHITECTURES = [
    "arch1",
    "arch2 training",
    "vgg training",
    "resnet training",
    "residual mlp",
    "segnet",
    "u-net",
    "grouped and depthwise",
    "weight norm",
    "tied embeddings",
    "llama",
    "gpt, rms norm, squared relu",
    "nn.MultiheadAttention across",
    "max pool over features",
]
QUICK = ["arch1", "arch2 training", "resnet training", "llama", "max pool over features"]
"""Those that are tried every time."""
INVARIANT: dict[str, Make] = {
    "SGD": lambda model, spec: FullMetricSGD(model, spec, lr=0.03),
    "momentum": lambda model, spec: FullMetricSGD(model, spec, lr=3e-3, momentum=0.9),
    "AdamW": lambda model, spec: invariant(AdamW, model, spec=spec, lr=0.01),
}
PLAIN: dict[str, Make] = {
    "SGD": lambda model, _: SGD(model.parameters(), lr=0.03),
    "AdamW": lambda model, _: AdamW(model.parameters(), lr=0.01),
}


def losses(
    model: nn.Module,
    arguments: tuple[Tensor, ...],
    optimizer: Optimizer,
    *,
    steps: int = STEPS,
    before_step: Callable[[Optimizer], object] = lambda _: None,
) -> Tensor:
    """Loss before every step, towards targets that do not depend on the weights."""
    found: list[Tensor] = []
    for step in range(steps):
        torch.manual_seed(step)  # some networks draw
        output = model(*arguments)
        output = output if isinstance(output, Tensor) else output[0]
        target = torch.randn(output.shape, generator=torch.Generator().manual_seed(9), dtype=output.dtype)
        loss = mse_loss(output, target)
        optimizer.zero_grad()
        loss.backward()
        before_step(optimizer)
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def curves_from_two_points(name: str, make: Make) -> tuple[Tensor, Tensor]:
    """Losses from an animal's own weights, and from those moved by scales up to a thousand."""
    here, spec = caught(name), group_of(name)
    there = spec.rescale_(copy.deepcopy(here.model), spec.random(seed=4, spread=THOUSAND))
    return (
        losses(here.model, here.arguments, make(here.model, spec)),
        losses(there, here.arguments, make(there, spec)),
    )


def disagreement(one: Tensor, other: Tensor) -> float:
    """Largest relative difference of two curves; infinite where one is not finite."""
    return float(((one - other).abs() / one).nan_to_num(math.inf).max())


on_every_architecture = pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ARCHITECTURES],
)


@on_every_architecture
@pytest.mark.parametrize("update", INVARIANT)
def test_losses_of_two_orbit_points_coincide(update: str, name: str) -> None:
    here, there = curves_from_two_points(name, INVARIANT[update])
    assert here[-1] < here[0]
    assert disagreement(here, there) <= TOLERANCE


@on_every_architecture
@pytest.mark.parametrize("update", PLAIN)
def test_losses_of_plain_optimizers_split(update: str, name: str) -> None:
    here, there = curves_from_two_points(name, PLAIN[update])
    assert here[-1] < here[0]
    assert disagreement(here, there) > 1e6 * TOLERANCE


def small_network() -> nn.Module:
    hidden = [nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(8, 2))


def a_network(dtype: torch.dtype = torch.float64) -> tuple[nn.Module, tuple[Tensor, ...], SymmetrySpec]:
    torch.manual_seed(0)
    model = small_network().to(dtype)
    return model, (torch.rand(16, 3, dtype=dtype),), symmetries()


@functools.cache
def symmetries() -> SymmetrySpec:
    """Those of the small network, whatever its weights."""
    return discover(small_network(), (torch.rand(16, 3),))


def moved_along(make: Make, clip: float | None = None) -> tuple[Tensor, Tensor]:
    """Curves of the small network from two points of its orbit."""
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = a_network()
        spec.rescale_(model, spec.random(seed=1, spread=far))
        optimizer = make(model, spec)
        clipping = (lambda o: clip_invariant_norm_(o, clip)) if clip is not None else (lambda _: None)
        curves.append(losses(model, x, optimizer, steps=20, before_step=clipping))
    return curves[0], curves[1]


OPTIONS: dict[str, Make] = {
    "Nesterov and decay": lambda model, spec: FullMetricSGD(
        model, spec, lr=3e-3, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "foreach": lambda model, spec: FullMetricSGD(model, spec, lr=3e-3, momentum=0.9, foreach=True),
    "capturable": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, capturable=True),
    "own rows": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, gauge=OwnRow()),
    "path norm": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, gauge=PathNorm()),
    "geometric": lambda model, spec: FullMetricSGD(model, spec, lr=0.03, gauge=Geometric()),
    "geometric AdamW": lambda model, spec: invariant(AdamW, model, spec=spec, lr=0.01, gauge=Geometric()),
    "groups": lambda model, spec: FullMetricSGD(
        model,
        spec,
        lr=0.03,
        groups=[{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2:].parameters()}],
    ),
    "RMSprop": lambda model, spec: invariant(torch.optim.RMSprop, model, spec=spec, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_keeps_the_invariance(name: str) -> None:
    here, there = moved_along(OPTIONS[name])
    assert here[-1] < here[0]
    assert disagreement(here, there) <= TOLERANCE


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_clipping_by_the_invariant_norm_keeps_the_invariance(name: str) -> None:
    here, there = moved_along(INVARIANT[name], clip=0.1)
    unclipped, _ = moved_along(INVARIANT[name])
    assert not torch.allclose(here, unclipped)
    assert disagreement(here, there) <= TOLERANCE


def test_plain_clipping_breaks_the_invariance() -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = a_network()
        spec.rescale_(model, spec.random(seed=1, spread=far))
        optimizer = FullMetricSGD(model, spec, lr=0.03)
        clip = lambda _, model=model: nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # noqa: E731
        curves.append(losses(model, x, optimizer, before_step=clip))
    assert disagreement(*curves) > 1e6 * TOLERANCE


def test_clipping_to_nothing_where_there_is_nothing_leaves_zeros() -> None:
    model, _, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert float(clip_invariant_norm_(optimizer, 0.0)) == 0.0
    assert all((parameter.grad == 0).all() for parameter in model.parameters())


def test_scaled_metric_and_its_chart_can_be_clipped_and_unit_norm_says_how() -> None:
    w = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    w.grad = torch.tensor([[1.0, 0.0]])
    for optimizer in (ScaledSGD([w], lr=0.1), invariant(SGD, [w], lr=0.1)):
        assert float(clip_invariant_norm_(optimizer, 100.0)) == 5.0
    with pytest.raises(OptionError, match="clip_grad_norm_ for unit-norm filters"):
        clip_invariant_norm_(UnitNormSGD([w], lr=0.1), 1.0)
    with pytest.raises(OptionError, match="max_norm must be"):
        clip_invariant_norm_(ScaledSGD([w], lr=0.1), -1.0)


def test_the_chart_with_plain_sgd_is_full_metric_sgd() -> None:
    model, x, spec = a_network()
    other = copy.deepcopy(model)
    one = losses(model, x, FullMetricSGD(model, spec, lr=0.1))
    two = losses(other, x, invariant(SGD, other, spec=spec, lr=0.1))
    torch.testing.assert_close(one, two, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", [*INVARIANT, *OPTIONS])
def test_saved_copied_and_pickled_optimizers_train_on_alike(name: str) -> None:
    make = (INVARIANT | OPTIONS)[name]
    model, x, spec = a_network()
    optimizer = make(model, spec)
    losses(model, x, optimizer, steps=3)
    copied_model, copied = copy.deepcopy((model, optimizer))
    pickled_model, pickled = pickle.loads(pickle.dumps((model, optimizer)))
    loaded_model = copy.deepcopy(model)
    loaded = make(loaded_model, spec)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch shares tensors that are loaded
    expected = losses(model, x, optimizer, steps=3)
    for other_model, other in ((copied_model, copied), (pickled_model, pickled), (loaded_model, loaded)):
        assert torch.equal(losses(other_model, x, other, steps=3), expected)


def zero_branch() -> tuple[nn.Module, tuple[Tensor, ...], SymmetrySpec]:
    model, x, spec = a_network()
    with torch.no_grad():
        model[2].weight.zero_()
    return model, x, spec


def test_training_resumed_from_a_checkpoint_reads_sizes_as_before() -> None:
    model, x, spec = zero_branch()
    optimizer = FullMetricSGD(model, spec, lr=0.03, momentum=0.9)
    losses(model, x, optimizer, steps=5)
    resumed = copy.deepcopy(model)  # its weights are zero no more
    again = FullMetricSGD(resumed, spec, lr=0.03, momentum=0.9)
    again.load_state_dict(optimizer.state_dict())
    assert torch.equal(losses(resumed, x, again, steps=5), losses(model, x, optimizer, steps=5))


def test_blocks_that_start_at_zero_learn_and_stay_invariant() -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = zero_branch()
        spec.rescale_(model, spec.random(seed=1, spread=far))
        curves.append(losses(model, x, FullMetricSGD(model, spec, lr=0.03)))
        assert (model[2].weight != 0).any()
    assert disagreement(*curves) <= TOLERANCE


@pytest.mark.parametrize("name", [*INVARIANT, "Nesterov and decay", "geometric AdamW"])
def test_rescaling_in_the_middle_of_training_with_the_optimizer_changes_nothing(name: str) -> None:
    curves: list[Tensor] = []
    for far in (0.0, THOUSAND):
        model, x, spec = a_network()
        optimizer = (INVARIANT | OPTIONS)[name](model, spec)
        losses(model, x, optimizer, steps=10)
        spec.rescale_(model, spec.random(seed=1, spread=far), optimizer=optimizer)
        curves.append(losses(model, x, optimizer, steps=10))
    assert disagreement(*curves) <= TOLERANCE


def test_low_precision_keeps_a_master_copy_and_follows_float32() -> None:
    model, _, spec = a_network(torch.float32)
    short = copy.deepcopy(model).to(torch.bfloat16)
    for one, two in zip(model.parameters(), short.parameters(), strict=True):
        one.data.copy_(two.data)
    optimizers = [FullMetricSGD(m, spec, lr=0.03, momentum=0.9) for m in (model, short)]
    for _ in range(3):
        for one, two in zip(model.parameters(), short.parameters(), strict=True):
            gradient = torch.randn_like(two)  # the same for both
            one.grad, two.grad = gradient.float(), gradient
        for optimizer in optimizers:
            optimizer.step()
    for one, two in zip(model.parameters(), short.parameters(), strict=True):
        torch.testing.assert_close(optimizers[1].state[two]["master"], one, rtol=1e-6, atol=1e-7)


def test_frozen_parameters_stay_and_gradients_are_not_written() -> None:
    model, x, spec = a_network()
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    model(*x).square().mean().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    optimizer.step()
    assert torch.equal(model[0].weight, frozen)
    assert all(torch.equal(model.get_parameter(name).grad, gradient) for name, gradient in before.items())


def test_what_cannot_be_served_is_refused_with_the_way_out() -> None:
    model, _, spec = a_network()
    with pytest.raises(OptionError, match=r"give the nn\.Module"):
        FullMetricSGD(model.parameters(), spec, lr=0.1)
    with pytest.raises(OptionError, match=r"what symoptim\.discover returns"):
        FullMetricSGD(model, None, lr=0.1)
    with pytest.raises(OptionError, match="gauge must be one of"):
        FullMetricSGD(model, spec, lr=0.1, gauge="pooled")
    with pytest.raises(SymmetryError, match="another model's symmetries"):
        FullMetricSGD(nn.Linear(3, 2), spec, lr=0.1)
    with pytest.raises(OptionError, match="none of the model's"):
        FullMetricSGD(model, spec, lr=0.1, groups=[nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(OptionError, match="on the meta device"):
        FullMetricSGD(copy.deepcopy(model).to("meta"), spec, lr=0.1)
    with pytest.raises(OptionError, match="together with its symmetries"):
        invariant(AdamW, model, lr=0.1)
    with pytest.raises(OptionError, match="together with its symmetries"):
        invariant(AdamW, model.parameters(), spec=spec, lr=0.1)


def test_a_state_of_another_gauge_is_refused() -> None:
    model, x, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.1, momentum=0.9)
    losses(model, x, optimizer, steps=1)
    with pytest.raises(CheckpointError, match="has gauge 'Geometric"):
        FullMetricSGD(model, spec, lr=0.1, momentum=0.9, gauge=Geometric()).load_state_dict(
            optimizer.state_dict()
        )


@pytest.mark.parametrize("name", ["momentum", "AdamW"])
def test_a_fresh_state_of_another_optimizer_brings_its_rate_and_nothing_else(name: str) -> None:
    model, x, spec = a_network()
    optimizer = INVARIANT[name](model, spec)
    fresh = SGD(model.parameters(), lr=0.7) if name == "momentum" else AdamW(model.parameters(), lr=0.7)
    optimizer.load_state_dict(fresh.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.7
    losses(model, x, optimizer, steps=1)
    again = INVARIANT[name](model, spec)
    again.load_state_dict(optimizer.state_dict())


def test_a_state_of_another_model_is_refused_and_changes_nothing() -> None:
    model, _, spec = a_network()
    other = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    other.append(nn.Linear(4, 2))
    theirs = FullMetricSGD(other, discover(other, (torch.rand(4, 3),)), lr=0.7)
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    with pytest.raises(CheckpointError, match="blocks were zero at the start"):
        optimizer.load_state_dict(theirs.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_parameters_can_be_added_when_they_thaw(name: str) -> None:
    model, x, spec = a_network()
    model[0].requires_grad_(False)
    optimizer = INVARIANT[name](model, spec)
    losses(model, x, optimizer, steps=2)
    model[0].requires_grad_(True)
    frozen = model[0].weight.clone()
    optimizer.add_param_group({"params": model[0].parameters()})
    losses(model, x, optimizer, steps=2)
    assert not torch.equal(model[0].weight, frozen)
    assert optimizer.param_groups[1]["param_names"] == ["0.weight", "0.bias"]


def test_geometries_are_refused() -> None:
    model, _, spec = a_network()
    with pytest.raises(OptionError, match="geometry 'rows' has no place"):
        FullMetricSGD(model, spec, lr=0.1, groups=param_groups(model))


def test_groups_of_any_optimizer_have_options_of_their_own() -> None:
    model, x, spec = a_network()
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2:].parameters()}]
    before = model[0].weight.clone()
    losses(model, x, invariant(AdamW, model, spec=spec, lr=0.01, weight_decay=0.0, groups=groups), steps=3)
    assert torch.equal(model[0].weight, before)


def test_compiled_and_wrapped_models_are_seen_through() -> None:
    model, x, spec = a_network()
    plain = copy.deepcopy(model)
    wrapped = nn.DataParallel(torch.compile(model, backend="eager"))
    expected = losses(plain, x, FullMetricSGD(plain, spec, lr=0.1), steps=3)
    assert torch.equal(losses(model, x, FullMetricSGD(wrapped, spec, lr=0.1), steps=3), expected)


def test_a_model_that_is_moved_is_followed() -> None:
    here = caught("arch2 evaluation")  # shifts are zero: buffers measure
    spec = group_of("arch2 evaluation")
    optimizer = FullMetricSGD(here.model.float(), spec, lr=0.1)
    here.model.double()
    fresh = FullMetricSGD(here.model, spec, lr=0.1)
    for model_scales, other in zip(optimizer.scales().values(), fresh.scales().values(), strict=True):
        for one, two in zip(model_scales, other, strict=True):
            assert one.dtype == torch.float64
            torch.testing.assert_close(one, two)


def test_precisions_can_be_mixed() -> None:
    model, _, spec = a_network(torch.float32)
    exact = copy.deepcopy(model).double()
    model[2].to(torch.bfloat16)
    exact[2].load_state_dict(model[2].state_dict())
    for one, two in zip(model.parameters(), exact.parameters(), strict=True):
        one.grad, two.grad = torch.ones_like(one), torch.ones_like(two)
    for some in (model, exact):
        FullMetricSGD(some, spec, lr=0.1).step()
    for one, two in zip(model.parameters(), exact.parameters(), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(
            one.double(), two, rtol=1e-5 if one.dtype == torch.float32 else 1e-2, atol=1e-5
        )


def test_symmetries_of_a_part_of_the_model_are_refused_once_the_rest_is_used() -> None:
    model, x, spec = a_network()
    model.append(nn.Linear(2, 2).double())
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    losses(model[:-1], x, optimizer, steps=1)
    with pytest.raises(SymmetryError, match=r"do not know '7\.weight', which has a gradient"):
        losses(model, x, optimizer, steps=1)


def test_a_gauge_without_symmetries_is_refused() -> None:
    model, _, _ = a_network()
    with pytest.raises(OptionError, match="together with its symmetries"):
        invariant(AdamW, param_groups(model), lr=0.1, gauge=PathNorm())


def test_printed_optimizers_are_short() -> None:
    model, _, spec = a_network()
    for make in INVARIANT.values():
        optimizer = make(model, spec)
        assert "alive" not in repr(optimizer)
        assert "gauge: Pooled()" in repr(optimizer)
        assert "alive" in optimizer.param_groups[0]


@pytest.mark.parametrize("name", INVARIANT)
def test_the_canonical_form_in_the_middle_of_training_changes_nothing(name: str) -> None:
    curves: list[Tensor] = []
    for canonical in (False, True):
        model, x, spec = a_network()
        optimizer = INVARIANT[name](model, spec)
        losses(model, x, optimizer, steps=10)
        if canonical:
            canonicalize_(model, spec, optimizer=optimizer)
        curves.append(losses(model, x, optimizer, steps=10))
    assert disagreement(*curves) <= TOLERANCE
