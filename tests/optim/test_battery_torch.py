"""What torch's own test_optim.py (class TestOptimRenewed) asks of an optimizer, asked of ours.

``tests/support/torch_harness.py`` runs that file itself, where it is at hand. What it asks of sparse and
complex parameters is left out: these are refused.
"""

import io
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import (
    OptimizerInfo,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optims,
)

from symoptim import UnitNormSGD, param_groups
from tests.support.battery import Battery, build, every_input, implementations, train
from tests.support.infos import ALL, OURS, Group, make_groups, parameters, set_gradients

STEPS = 7
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def all_inputs(optim_info: OptimizerInfo, device: str, dtype: torch.dtype) -> list[Any]:
    """Options times implementations, the differentiable one included where there is one."""
    return _get_optim_inputs_including_global_cliquey_kwargs(device, dtype, optim_info)


def linear(device: str, dtype: torch.dtype, *, has_gaps: bool = False) -> tuple[list[Group], Tensor, Tensor]:
    """A weight and a bias, in groups of their own."""
    weight, bias = torch.randn(10, 5, 2, device=device, dtype=dtype), torch.randn(10, 2, device=device)
    both = [one[..., 0] if has_gaps else one[..., 0].contiguous() for one in (weight, bias.to(dtype))]
    weight, bias = (nn.Parameter(one) for one in both)
    return [{"params": [weight]}, {"params": [bias], "geometry": "plain"}], weight, bias


def loss_of(optimizer: Optimizer, weight: Tensor, bias: Tensor, x: Tensor) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight.mv(x) + bias).square().sum()
        loss.backward()
        return loss.detach()

    return closure


class TestAsTorch(Battery):
    def assert_moves(self, optimizer: Optimizer, closure: Callable[[], Tensor], schedulers: Any = ()) -> None:
        """The loss goes down, or up where it is maximized."""
        first = float(closure())
        for _ in range(20):
            loss = closure()
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step(*[loss] * isinstance(scheduler, ReduceLROnPlateau))
        sign = -1 if optimizer.param_groups[0].get("maximize") else 1
        assert sign * float(closure()) < sign * first

    @optims(ALL, dtypes=[torch.float32])
    def test_the_loss_goes_the_right_way_with_and_without_schedulers(self, device, dtype, optim_info):
        x = torch.randn(5, device=device, dtype=dtype)
        for make_schedulers in [(), *optim_info.scheduler_inputs]:
            for has_gaps in (False, True):
                for optim_input in optim_info.optim_inputs_func(device):
                    groups, weight, bias = linear(device, dtype, has_gaps=has_gaps)
                    kwargs = {"lr": 1e-3, **optim_input.kwargs, "foreach": False}
                    optimizer = build(optim_info, groups, kwargs)
                    if make_schedulers and isinstance(kwargs["lr"], Tensor):
                        continue  # a scheduler's factor may have another type
                    schedulers = [make(optimizer) for make in make_schedulers]
                    self.assert_moves(optimizer, loss_of(optimizer, weight, bias, x), schedulers)

    @optims(ALL, dtypes=[torch.float32])
    def test_groups_may_have_decay_and_rates_of_their_own(self, device, dtype, optim_info):
        x = torch.randn(5, device=device, dtype=dtype)
        for optim_input in every_input(optim_info, device, dtype):
            groups, weight, bias = linear(device, dtype)
            still = nn.Parameter(torch.randn(2, device=device, dtype=dtype))
            before = still.detach().clone()
            kwargs = {"lr": 1e-3, **optim_input.kwargs}
            groups[0].update(kwargs)
            groups[1].update({**kwargs, "weight_decay": 0.0})
            optimizer = build(optim_info, [*groups, {"params": [still], "geometry": "plain"}], {"lr": 1e-28})
            still.grad = torch.rand_like(still)
            closure = loss_of(optimizer, weight, bias, x)
            self.assert_moves(optimizer, closure)
            self.assertEqual(still, before)

    @optims(ALL, dtypes=[torch.float32])
    def test_a_tensor_rate_is_a_number_for_every_implementation(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            both = [make_groups(device, dtype) for _ in range(2)]
            for groups, lr in zip(both, (1e-3, torch.tensor(1e-3)), strict=True):
                try:
                    train(build(optim_info, groups, {**optim_input.kwargs, "lr": lr}), groups)
                except ValueError as error:
                    # As some of torch's say; ours take it everywhere.
                    if optim_info in OURS or "lr as a Tensor is not supported" not in str(error):
                        raise
                    break  # to the next input
            else:
                self.assertEqual(parameters(both[0]), parameters(both[1]))

    def assert_equal_all_along(self, one: Optimizer, other: Optimizer, **tolerance: float) -> None:
        """Equal after every step, also of those in which some or all parameters have no gradient."""
        for step in range(STEPS):
            for optimizer in (one, other):
                set_gradients(optimizer.param_groups, step)
                idle = {2: slice(None), 3: slice(2, 4), 4: slice(2, 4)}.get(step, slice(0))
                for parameter in parameters(optimizer.param_groups)[idle]:
                    parameter.grad = None
                optimizer.step()
            self.assert_same(one, other, **tolerance)

    @optims(ALL, dtypes=[torch.float64])
    def test_implementations_agree_while_parameters_are_frozen_and_thawed(self, device, dtype, optim_info):
        for optim_input in optim_info.optim_inputs_func(device):
            if optim_input.kwargs.get("capturable") and optim_info not in OURS:
                continue  # of torch's, on accelerators only
            for flag in implementations(optim_info, device):
                one, other = (
                    build(optim_info, make_groups(device, dtype), {**optim_input.kwargs, flag: value})
                    for value in (False, True)
                )
                self.assert_equal_all_along(one, other)

    @optims(OURS, dtypes=FLOATS)
    def test_fused_steps_are_those_of_the_loop_in_every_precision(self, device, dtype, optim_info):
        rounding = {} if dtype is torch.float64 else {"rtol": 1e-5, "atol": 1e-4}  # of state, of steps of 1
        for optim_input in optim_info.optim_inputs_func(device):
            one, other = (
                build(optim_info, make_groups(device, dtype), {**optim_input.kwargs, "fused": value})
                for value in (False, True)
            )
            self.assert_equal_all_along(one, other, **rounding)

    @optims(ALL, dtypes=[torch.float32])
    def test_steps_without_gradients_or_with_zero_ones_do_nothing(self, device, dtype, optim_info):
        for optim_input in all_inputs(optim_info, device, dtype):
            kwargs = optim_input.kwargs
            frozen = [torch.randn(2, 3, device=device, dtype=dtype) for _ in range(2)]
            before = deepcopy(frozen)
            build(optim_info, frozen, kwargs).step(lambda: torch.ones(1))
            self.assertEqual(frozen, before)
            if kwargs.get("weight_decay") or optim_info.optim_cls.__name__ == "InvariantAdamW":
                continue  # which decays by default
            weight = nn.Parameter(torch.randn(5, 1, device=device, dtype=dtype))
            weight = weight.clone() if kwargs.get("differentiable") else weight
            optimizer = build(optim_info, [weight], kwargs)
            before = weight.detach().clone()  # UnitNormSGD has normalized it
            weight.grad = torch.zeros_like(weight)
            optimizer.step(lambda: torch.ones(1))
            self.assertEqual(weight.detach(), before)

    @optims(ALL, dtypes=[torch.float32])
    def test_there_is_no_empty_state(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups, last=1)
            assert all(len(state) for state in optimizer.state.values())

    @optims(ALL, dtypes=[torch.float32])
    def test_optimizers_can_be_printed_and_copies_have_all_attributes(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups, last=2)
            assert optim_info.optim_cls.__name__ in repr(optimizer)
            public = [{key for key in vars(one) if key[0] != "_"} for one in (optimizer, deepcopy(optimizer))]
            assert public[0] == public[1]

    @optims(ALL, dtypes=[torch.float32])
    def test_states_of_named_parameters_fit_unnamed_ones_and_keep_names(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            for named in ((True, True), (True, False), (False, True)):
                optimizers: list[Optimizer] = []
                for is_named in named:
                    weights = [nn.Parameter(torch.ones(2, 3, device=device)) for _ in range(2)]
                    given = list(zip("ab", weights, strict=True)) if is_named else weights
                    optimizers.append(build(optim_info, [{"params": given}], optim_input.kwargs))
                train(optimizers[0], optimizers[0].param_groups, last=3)
                optimizers[1].load_state_dict(deepcopy(optimizers[0].state_dict()))
                train(optimizers[1], optimizers[1].param_groups, last=1)
                names = optimizers[1].state_dict()["param_groups"][0]["param_names"]
                assert names == ["a", "b"]

    @optims(ALL, dtypes=[torch.float32])
    @pytest.mark.filterwarnings("ignore:.*was registered last:symoptim.errors.GeometryWarning")
    def test_states_from_before_options_were_added_can_be_loaded(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            model = nn.Sequential(nn.Conv2d(4, 2, 1, stride=2), nn.BatchNorm2d(2)).to(device, dtype)
            groups = param_groups(model)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups, last=3)
            old = deepcopy(optimizer.state_dict())
            for group in old["param_groups"]:
                for flag in optim_info.not_og_supported_flags:
                    group.pop(flag, None)
            for state in old["state"].values():
                if isinstance(state.get("step"), Tensor):
                    state["step"] = state["step"].item()
            other = deepcopy(model)
            loaded = build(optim_info, param_groups(other), optim_input.kwargs)
            loaded.load_state_dict(old)
            for one, other in zip(optimizer.param_groups, loaded.param_groups, strict=True):
                added = {flag: other[flag] for flag in optim_info.not_og_supported_flags if flag in other}
                one.update(added)  # the state says nothing of them: they are the defaults
            for one in (optimizer, loaded):
                train(one, one.param_groups, first=3)
            self.assert_same(loaded, optimizer, exact=True)

    @optims(ALL, dtypes=[torch.float32])
    def test_states_are_saved_and_loaded_as_they_are_with_weights_only(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups, last=3)
            saved, file = optimizer.state_dict(), io.BytesIO()
            torch.save(saved, file)
            file.seek(0)
            self.assertEqual(torch.load(file, weights_only=True), saved)

    @optims(ALL, dtypes=[torch.float32])
    def test_hooks_around_states_are_called_in_order(self, device, dtype, optim_info):
        def rate(value: float) -> Callable[[Optimizer, dict[str, Any]], dict[str, Any]]:
            def hook(_: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
                groups = [{**group, "lr": value} for group in state["param_groups"]]
                return {**state, "param_groups": groups}

            return hook

        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups, last=1)
            optimizer.register_state_dict_pre_hook(lambda one: one.state.update(test=1))
            optimizer.register_state_dict_post_hook(
                lambda _, state: {**state, "seen": "test" in state["state"]}
            )
            saved = optimizer.state_dict()
            assert saved.pop("seen")
            optimizer.register_load_state_dict_pre_hook(rate(0.002))
            optimizer.register_load_state_dict_pre_hook(rate(0.003), prepend=True)
            optimizer.register_load_state_dict_post_hook(lambda one: one.state.update(loaded=True))
            for _ in range(2):  # the second time with what the hooks have put there
                optimizer.load_state_dict(optimizer.state_dict())
            assert optimizer.param_groups[0]["lr"] == 0.002
            assert optimizer.state["loaded"]
            assert optimizer.state["test"] == 1
            train(optimizer, groups, last=1)

    @optims(ALL, dtypes=[torch.float32])
    def test_hooks_around_steps_are_called_in_order_until_removed(self, device, dtype, optim_info):
        for optim_input in all_inputs(optim_info, device, dtype):
            weight = torch.ones(2, 2, device=device, dtype=dtype)
            ours, other = build(optim_info, [weight], optim_input.kwargs), SGD([weight])
            calls: list[str] = []
            handles = [
                register_optimizer_step_pre_hook(lambda *_: calls.append("all before")),  # noqa: B023
                register_optimizer_step_post_hook(lambda *_: calls.append("all after")),  # noqa: B023
            ]
            for one in (ours, other):
                handles.append(one.register_step_pre_hook(lambda *_: calls.append("before")))  # noqa: B023
                handles.append(one.register_step_post_hook(lambda *_: calls.append("after")))  # noqa: B023
            for one in (ours, other, ours):
                one.step()
            assert calls == ["all before", "before", "after", "all after"] * 3
            for handle in handles:
                handle.remove()
            ours.step()
            assert len(calls) == 12

    @optims(OURS, dtypes=[torch.float32])
    def test_the_constructor_of_unit_norm_sgd_alone_changes_weights(self, device, dtype, optim_info):
        groups = make_groups(device, dtype)
        before = deepcopy(parameters(groups))
        build(optim_info, groups, {"lr": 0.01})
        is_unit_norm = optim_info.optim_cls is UnitNormSGD
        assert all(map(torch.equal, parameters(groups), before)) == (not is_unit_norm)


instantiate_device_type_tests(TestAsTorch, globals(), only_for=("cpu", "cuda"))
