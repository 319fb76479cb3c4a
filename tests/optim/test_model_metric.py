"""Optimizers in the full metric as users treat them: saved, thawed, wrapped, moved, mistaken."""

import copy
import pickle
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from symoptim import (
    FullMetricSGD,
    Geometric,
    PathNorm,
    SymmetrySpec,
    discover,
    invariant,
    param_groups,
)
from symoptim.errors import (
    CheckpointError,
    GeometryWarning,
    ModeWarning,
    OptionError,
    SymmetryError,
    UngroupedWarning,
)
from tests.support.two_points import (
    INVARIANT,
    OPTIONS,
    a_network,
    losses,
    zero_branch,
)
from tests.support.zoo import caught, group_of


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


def test_training_resumed_from_a_checkpoint_reads_sizes_as_before() -> None:
    model, x, spec = zero_branch()
    optimizer = FullMetricSGD(model, spec, lr=0.03, momentum=0.9)
    losses(model, x, optimizer, steps=5)
    resumed = copy.deepcopy(model)  # its weights are zero no more
    again = FullMetricSGD(resumed, spec, lr=0.03, momentum=0.9)
    again.load_state_dict(optimizer.state_dict())
    assert torch.equal(losses(resumed, x, again, steps=5), losses(model, x, optimizer, steps=5))


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
    with pytest.raises(OptionError, match=r"give spec=symoptim\.discover\(model, example_inputs\)"):
        FullMetricSGD(model)
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


@pytest.mark.parametrize("fused", [None, False])
def test_a_parameter_that_was_put_in_place_of_another_is_refused(fused: bool | None) -> None:
    model, x, spec = a_network()
    optimizer = FullMetricSGD(model, spec, lr=0.1, fused=fused)
    model(*x).square().mean().backward()
    optimizer.step()
    old = optimizer.param_groups[0]["params"][0]
    new = optimizer.param_groups[0]["params"][0] = nn.Parameter(old.detach().clone())
    new.grad = old.grad
    with pytest.raises(OptionError, match="none of the model's"):
        optimizer.step()
    assert new.equal(old)


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


def with_batch_norm() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    layers = (nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 2))
    return nn.Sequential(*layers).double(), (torch.rand(8, 3, dtype=torch.float64),)


@pytest.mark.parametrize("name", INVARIANT)
@pytest.mark.parametrize("training", [True, False])
def test_symmetries_of_the_other_mode_are_said_once_at_the_first_step(name: str, training: bool) -> None:
    model, x = with_batch_norm()
    optimizer = INVARIANT[name](model, discover(model.train(training), x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses(model, x, optimizer, steps=2)
    now = "evaluation" if training else "training"
    model.train(not training)
    with pytest.warns(ModeWarning, match=rf"'1' \(BatchNorm1d\) is in {now} mode") as told:
        losses(model, x, optimizer, steps=3)
    assert len(told) == 1


@pytest.mark.parametrize("fused", [None, False])
def test_a_batch_norm_that_changes_its_mode_alone_is_seen(fused: bool | None) -> None:
    model, x = with_batch_norm()
    optimizer = FullMetricSGD(model, discover(model, x), lr=0.01, fused=fused)
    losses(model, x, optimizer, steps=2)
    model[1].eval()
    with pytest.warns(ModeWarning, match="'1'"):
        losses(model, x, optimizer, steps=1)
    frozen = FullMetricSGD(model, discover(model, x), lr=0.01, fused=fused)
    losses(model, x, frozen, steps=1)


def test_the_mode_is_of_no_matter_where_no_statistics_run() -> None:
    model, x, _ = a_network()
    model.append(nn.Dropout(0.1))
    losses(model.train(), x, FullMetricSGD(model, discover(model.eval(), x), lr=0.01), steps=1)
    model, x = with_batch_norm()
    written = SymmetrySpec.from_json(discover(model.eval(), x).to_json())
    with pytest.warns(ModeWarning):
        losses(model.train(), x, FullMetricSGD(model, written, lr=0.01), steps=1)
    unknown = replace(written, modes={})  # as written by an earlier version
    losses(model.train(), x, FullMetricSGD(model, unknown, lr=0.01), steps=1)


@pytest.mark.parametrize("name", INVARIANT)
def test_parameters_that_thaw_in_no_group_are_named(name: str) -> None:
    model, x, spec = a_network()
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    optimizer = INVARIANT[name](model, spec)
    losses(model, x, optimizer, steps=2)
    model[0].requires_grad_(True)
    with pytest.warns(UngroupedWarning, match=r"0\.weight, 0\.bias: .*add_param_group") as told:
        losses(model, x, optimizer, steps=2)
    assert len(told) == 1
    model[2].bias.requires_grad_(True)
    with pytest.warns(
        UngroupedWarning, match=r"2\.bias: was frozen when the optimizer was created and now has gradients"
    ):
        losses(model, x, optimizer, steps=1)


def test_thawed_parameters_are_named_though_all_others_are_frozen_by_then() -> None:
    model, x, spec = a_network()
    model.requires_grad_(False)
    model[-1].requires_grad_(True)
    optimizer = FullMetricSGD(model, spec, lr=0.1)
    losses(model, x, optimizer, steps=1)
    optimizer.zero_grad()
    model[-1].requires_grad_(False)
    model[0].requires_grad_(True)
    with pytest.warns(UngroupedWarning, match="0.weight"):
        losses(model, x, optimizer, steps=1)


def test_parameters_that_were_left_out_by_choice_are_not_named() -> None:
    model, x, spec = a_network()
    losses(model, x, FullMetricSGD(model, spec, lr=0.1, groups=model[0].parameters()), steps=1)


@pytest.mark.parametrize("name", INVARIANT)
def test_a_group_without_rescalings_is_said_to_change_nothing(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    spec = discover(model, (torch.rand(4, 3),))
    with pytest.warns(GeometryWarning, match="the group has no rescaling"):
        INVARIANT[name](model, spec)


@pytest.mark.parametrize("name", INVARIANT)
@pytest.mark.parametrize("change", ["layer", "weight"])
def test_parameters_put_into_the_model_later_are_named_at_the_first_step(name: str, change: str) -> None:
    model, x, spec = a_network()
    optimizer = INVARIANT[name](model, spec)
    if change == "layer":
        model[0] = copy.deepcopy(model[0])
    else:
        model[0].weight = nn.Parameter(model[0].weight.detach().clone())
    optimizer.step()  # there are no gradients yet
    with pytest.warns(UngroupedWarning, match=r"0\.weight.*: w\w+ added to the model after .* anew") as said:
        losses(model, x, optimizer, steps=2)
    assert len(said) == 1
    assert said[0].filename.endswith("two_points.py")


@pytest.mark.parametrize("make", [FullMetricSGD, lambda model, spec: invariant(AdamW, model, spec=spec)])
def test_a_model_without_trainable_parameters_is_refused_with_the_way_out(make: Any) -> None:
    model, _, spec = a_network()
    model.requires_grad_(False)
    with pytest.raises(OptionError, match=r"no parameter of .* requires gradients.*requires_grad_\(\)"):
        make(model, spec)
