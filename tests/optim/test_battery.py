"""A battery of properties for every optimizer, implementation and option, on torch's own machinery."""

import pickle
import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import (
    OptimizerErrorEnum,
    OptimizerInfo,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optims,
)
from torch.testing._internal.common_utils import TestCase

from optim.infos import ALL, OURS, Group, make_groups, parameters, set_gradients
from symoptim import UnitNormSGD
from symoptim.errors import GradientError
from symoptim.geometry.unit_norm import normalize

STEPS = 5


def every_input(optim_info: OptimizerInfo, device: str, dtype: torch.dtype) -> list[Any]:
    """All options times all implementations but the differentiable one, which leaves cannot take."""
    return _get_optim_inputs_including_global_cliquey_kwargs(
        device, dtype, optim_info, skip=("differentiable",)
    )


def implementations(optim_info: OptimizerInfo, device: str) -> list[str]:
    """Ways to take a step besides the loop that this device has."""
    fused = torch.device(device).type in optim_info.supports_fused_on
    return ["foreach", "fused"] if fused else ["foreach"]


def build(optim_info: OptimizerInfo, groups: list[Group], kwargs: dict[str, Any]) -> Optimizer:
    with warnings.catch_warnings():
        # torch's capturable=True inputs on the CPU, and its notes on Tensor rates, are not ours to judge.
        warnings.simplefilter("ignore", UserWarning)
        return optim_info.optim_cls(groups, **deepcopy(kwargs))


def train(optimizer: Optimizer, groups: list[Group], first: int = 0, last: int = STEPS) -> None:
    for seed in range(first, last):
        set_gradients(groups, seed)
        optimizer.step()


def state_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [optimizer.state[p] for p in parameters(optimizer.param_groups)]


class TestBattery(TestCase):
    def assert_same(
        self, one: Optimizer, other: Optimizer, *, exact: bool = False, **tolerance: float
    ) -> None:
        """Equal parameters and equal state; to rounding unless ``exact``."""
        if exact:
            tolerance = {"rtol": 0, "atol": 0}
        for a, b in zip(parameters(one.param_groups), parameters(other.param_groups), strict=True):
            self.assertEqual(a, b, **tolerance)
        for a, b in zip(state_of(one), state_of(other), strict=True):
            # torch's fused steps count on the device, its loops on the host
            self.assertEqual(a, b, exact_device=False, **tolerance)

    @optims(ALL, dtypes=[torch.float64])
    def test_every_implementation_equals_the_loop_including_state(self, device, dtype, optim_info):
        for optim_input in optim_info.optim_inputs_func(device):
            for flag in implementations(optim_info, device):
                slow, fast = make_groups(device, dtype), make_groups(device, dtype)
                loop = build(optim_info, slow, {**optim_input.kwargs, flag: False})
                other = build(optim_info, fast, {**optim_input.kwargs, flag: True})
                train(loop, slow)
                train(other, fast)
                # torch's own capturable steps correct their averages in float32
                rounding = 1e-6 if optim_info not in OURS and optim_input.kwargs.get("capturable") else 1e-12
                self.assert_same(loop, other, rtol=rounding, atol=rounding)

    @optims(OURS, dtypes=[torch.float16, torch.bfloat16])
    def test_stacked_steps_of_short_types_equal_the_loop_to_float32_rounding(self, device, dtype, optim_info):
        for optim_input in optim_info.optim_inputs_func(device):
            slow, fast = make_groups(device, dtype), make_groups(device, dtype)
            loop = build(optim_info, slow, {**optim_input.kwargs, "foreach": False})
            stacked = build(optim_info, fast, {**optim_input.kwargs, "foreach": True})
            train(loop, slow)
            train(stacked, fast)
            for a, b in zip(state_of(loop), state_of(stacked), strict=True):
                self.assertEqual(a, b, rtol=1e-5, atol=1e-6)

    @optims(ALL, dtypes=[torch.float32, torch.float64])
    def test_gradients_stay_the_same_objects_with_the_same_bits(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            for seed in range(3):
                set_gradients(groups, seed)
                before = [(p.grad, p.grad.clone()) for p in parameters(groups)]
                optimizer.step()
                for p, (grad, bits) in zip(parameters(groups), before, strict=True):
                    assert p.grad is grad
                    assert torch.equal(grad, bits)

    @optims(ALL, dtypes=[torch.float64])
    def test_a_first_step_without_gradient_or_decay_moves_nothing(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            kwargs = {k: v for k, v in optim_input.kwargs.items() if k != "decoupled_weight_decay"}
            optimizer = build(optim_info, groups, {**kwargs, "weight_decay": 0.0})
            before = [p.detach().clone() for p in parameters(groups)]
            for p in parameters(groups):
                p.grad = torch.zeros_like(p)
            optimizer.step()
            # Unit rows are normalized again by every step, which may move them by a rounding.
            tolerance = 1e-15 if optim_info.optim_cls is UnitNormSGD else 0.0
            for p, old in zip(parameters(groups), before, strict=True):
                self.assertEqual(p.detach(), old, rtol=0, atol=tolerance)

    @optims(ALL, dtypes=[torch.float64])
    def test_parameters_without_a_gradient_are_not_touched(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            before = [p.detach().clone() for p in parameters(groups)]
            made = [set(state) for state in state_of(optimizer)]
            set_gradients(groups, 0)
            idle = parameters(groups)[::2]
            for p in idle:
                p.grad = None
            optimizer.step()
            for p, old, keys in zip(parameters(groups), before, made, strict=True):
                idles = any(p is q for q in idle)
                assert torch.equal(p, old) == idles
                assert not idles or set(optimizer.state[p]) == keys

    @optims(ALL, dtypes=[torch.float64])
    def test_rates_may_be_tensors_of_no_or_one_dimension(self, device, dtype, optim_info):
        impls = [{}] + [{impl: True} for impl in optim_info.supported_impls if impl == "foreach"]
        for impl in impls if optim_info in OURS else [{}]:
            numbers, scalars, vectors = (make_groups(device, dtype) for _ in range(3))
            by_number = build(optim_info, numbers, {"lr": 0.01, **impl})
            by_scalar = build(optim_info, scalars, {"lr": torch.tensor(0.01, dtype=dtype), **impl})
            by_vector = build(optim_info, vectors, {"lr": torch.tensor([0.01], dtype=dtype), **impl})
            for optimizer in (by_number, by_scalar, by_vector):
                train(optimizer, optimizer.param_groups)
            self.assert_same(by_number, by_scalar, rtol=1e-14, atol=1e-14)
            self.assert_same(by_number, by_vector, rtol=1e-14, atol=1e-14)

    @optims(ALL, dtypes=[torch.float32])
    def test_training_goes_on_from_a_state_dict_as_if_nothing_had_happened(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups)
            resumed_groups = deepcopy(groups)
            resumed = build(optim_info, resumed_groups, optim_input.kwargs)
            saved = deepcopy(optimizer.state_dict())
            resumed.load_state_dict(saved)
            self.assertEqual(optimizer.state_dict(), saved)
            train(optimizer, groups, STEPS, 2 * STEPS)
            train(resumed, resumed_groups, STEPS, 2 * STEPS)
            self.assert_same(optimizer, resumed, exact=True)

    @optims(OURS, dtypes=[torch.float32])
    def test_state_is_kept_in_update_precision_across_dtypes(self, device, dtype, optim_info):
        dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
        for saved_in, loaded_in in [(a, b) for a in dtypes for b in dtypes]:
            groups, other = make_groups(device, saved_in), make_groups(device, loaded_in)
            optimizer = build(optim_info, groups, {"lr": 0.01, "momentum": 0.9})
            train(optimizer, groups)
            loaded = build(optim_info, other, {"lr": 0.01, "momentum": 0.9})
            loaded.load_state_dict(optimizer.state_dict())
            wide = torch.float64 if loaded_in is torch.float64 else torch.float32
            short = loaded_in in (torch.float16, torch.bfloat16)
            for old, new in zip(state_of(optimizer), state_of(loaded), strict=True):
                assert new["momentum_buffer"].dtype == wide
                # Bit for bit: a cast to bfloat16 and back on the way would show.
                assert torch.equal(new["momentum_buffer"], old["momentum_buffer"].to(wide))
                assert ("master" in new) == (short and "master" in old)
            train(loaded, other, STEPS, 2 * STEPS)
            assert all(p.isfinite().all() for p in parameters(other))
            assert all(("master" in state) == short for state in state_of(loaded))

    @optims(ALL, dtypes=[torch.float64])
    def test_every_group_has_its_own_rate(self, device, dtype, optim_info):
        for still in range(4):
            groups = make_groups(device, dtype)
            groups[still]["lr"] = 0.0
            optimizer = build(optim_info, groups, {"lr": 0.01})
            before = [[p.detach().clone() for p in group["params"]] for group in optimizer.param_groups]
            train(optimizer, groups, last=1)
            for index, (group, old) in enumerate(zip(optimizer.param_groups, before, strict=True)):
                for p, q in zip(group["params"], old, strict=True):
                    assert torch.allclose(p, q, rtol=0, atol=1e-15) == (index == still)

    @optims(ALL, dtypes=[torch.float32])
    def test_hooks_are_called_once_and_see_true_weights(self, device, dtype, optim_info):
        groups = make_groups(device, dtype)
        # At a class's first instance torch puts hook calls into its step: the wrapped class's must not run.
        getattr(optim_info.optim_cls, "wrapped_class", optim_info.optim_cls)([nn.Parameter(torch.ones(2, 2))])
        optimizer = build(optim_info, groups, {"lr": 0.01})
        calls: list[str] = []
        seen: list[Tensor] = []
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        optimizer.register_step_post_hook(lambda *_: seen.append(parameters(groups)[0].detach().clone()))
        train(optimizer, groups, last=2)
        assert calls == ["before", "after"] * 2
        assert torch.equal(seen[-1], parameters(groups)[0])

    @optims(ALL, dtypes=[torch.float32])
    def test_copies_and_pickles_train_on_alike(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            train(optimizer, groups)
            copied = deepcopy(optimizer)
            pickled = pickle.loads(pickle.dumps(optimizer))
            for other in (copied, pickled):
                assert type(other) is type(optimizer)
                train(other, other.param_groups, STEPS, 2 * STEPS)
            train(optimizer, groups, STEPS, 2 * STEPS)
            self.assert_same(optimizer, copied, exact=True)
            self.assert_same(optimizer, pickled, exact=True)

    @optims(ALL, dtypes=[torch.float32])
    def test_bad_input_is_refused_with_its_reason(self, device, dtype, optim_info):
        for bad in optim_info.optim_error_inputs_func(device, dtype):
            given = bad.optimizer_error_input
            params = given.params if given.params is not None else make_groups(device, dtype)
            if bad.error_type is UserWarning:
                with self.assertWarnsRegex(UserWarning, bad.error_regex):
                    optim_info.optim_cls(params, **given.kwargs)
            elif bad.error_on is OptimizerErrorEnum.STEP_ERROR:
                optimizer = optim_info.optim_cls(params, **given.kwargs)
                with self.assertRaisesRegex(bad.error_type, bad.error_regex):
                    optimizer.step()
            else:
                with self.assertRaisesRegex(bad.error_type, bad.error_regex):
                    optim_info.optim_cls(params, **given.kwargs)

    @optims(ALL, dtypes=[torch.float64])
    def test_a_refused_step_leaves_weights_and_state_as_they_were(self, device, dtype, optim_info):
        groups = make_groups(device, dtype)
        optimizer = build(optim_info, groups, {"lr": 0.01})
        train(optimizer, groups)
        weights, state = deepcopy(parameters(groups)), deepcopy(state_of(optimizer))
        last = parameters(groups)[-2]
        last.grad = torch.eye(7, 2, device=device, dtype=dtype).to_sparse()
        with self.assertRaises(GradientError):
            optimizer.step()
        self.assertEqual(parameters(groups), weights, rtol=0, atol=0)
        self.assertEqual(state_of(optimizer), state, rtol=0, atol=0)

    @optims(ALL, dtypes=[torch.float64])
    def test_a_refused_group_leaves_the_optimizer_and_all_weights_as_they_were(
        self, device, dtype, optim_info
    ):
        groups = make_groups(device, dtype)
        before = deepcopy(parameters(groups))
        bad = {"params": [nn.Parameter(torch.ones(3))], "geometry": "rows"}
        with self.assertRaisesRegex(ValueError, "needs at least 2 axes"):
            build(optim_info, [*groups, bad], {"lr": 0.01})
        self.assertEqual(parameters(groups), before, rtol=0, atol=0)
        optimizer = build(optim_info, groups, {"lr": 0.01})
        with self.assertRaisesRegex(ValueError, "needs at least 2 axes"):
            optimizer.add_param_group(dict(bad))
        assert len(optimizer.param_groups) == len(groups)

    @optims(ALL, dtypes=[torch.float64])
    def test_a_group_added_later_is_trained_like_one_given_at_first(self, device, dtype, optim_info):
        together, apart = make_groups(device, dtype), make_groups(device, dtype)
        at_once = build(optim_info, together, {"lr": 0.01})
        later = build(optim_info, apart[:1], {"lr": 0.01})
        for group in apart[1:]:
            later.add_param_group(group)
        train(at_once, together)
        train(later, apart)
        self.assert_same(at_once, later, exact=True)

    @optims(ALL, dtypes=[torch.float64])
    def test_maximizing_is_minimizing_with_the_opposite_gradient(self, device, dtype, optim_info):
        up, down = make_groups(device, dtype), make_groups(device, dtype)
        ascending = build(optim_info, up, {"lr": 0.01, "maximize": True})
        descending = build(optim_info, down, {"lr": 0.01})
        for seed in range(STEPS):
            set_gradients(up, seed)
            set_gradients(down, seed)
            for p in parameters(down):
                p.grad.neg_()
            ascending.step()
            descending.step()
        self.assert_same(ascending, descending, exact=True)

    @optims(ALL, dtypes=[torch.float32])
    def test_a_closure_is_run_with_gradients_enabled_and_its_loss_returned(self, device, dtype, optim_info):
        weight = nn.Parameter(torch.ones(2, 2, device=device, dtype=dtype))
        optimizer = build(optim_info, [weight], {"lr": 0.01})

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = (weight[0, 0] * weight[1, 1]).square()
            loss.backward()
            return loss

        first, second = optimizer.step(closure), optimizer.step(closure)
        assert second < first
        assert optimizer.step() is None

    @optims(ALL, dtypes=[torch.float32])
    def test_grad_scaler_scales_the_loss_and_not_the_step(self, device, dtype, optim_info):
        for optim_input in every_input(optim_info, device, dtype):
            plain, scaled = make_groups(device, dtype), make_groups(device, dtype)
            reference = build(optim_info, plain, optim_input.kwargs)
            optimizer = build(optim_info, scaled, optim_input.kwargs)
            scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=1024.0)
            for seed in range(3):
                set_gradients(plain, seed)
                reference.step()
                set_gradients(scaled, seed)
                scaler.scale(torch.ones((), device=device))  # creates the scale, as scaling a loss does
                for p in parameters(scaled):
                    p.grad.mul_(1024.0)
                scaler.step(optimizer)
                scaler.update()
            self.assert_same(reference, optimizer, rtol=1e-6, atol=1e-7)
            before = deepcopy(parameters(scaled))
            set_gradients(scaled, 9)
            parameters(scaled)[0].grad[0, 0] = torch.inf
            scaler.scale(torch.ones((), device=device))
            scaler.step(optimizer)
            self.assertEqual(parameters(scaled), before, rtol=0, atol=0)

    @optims(ALL, dtypes=[torch.float32])
    def test_schedulers_steer_the_rate(self, device, dtype, optim_info):
        for make_scheduler in optim_info.scheduler_inputs[0]:
            groups = make_groups(device, dtype)
            optimizer = build(optim_info, groups, {"lr": 0.01})
            scheduler = make_scheduler(optimizer)
            for seed in range(25):
                set_gradients(groups, seed)
                optimizer.step()
                scheduler.step(*[1.0] * (type(scheduler).__name__ == "ReduceLROnPlateau"))
            assert all(group["lr"] < 0.01 for group in optimizer.param_groups)

    @optims(ALL, dtypes=[torch.float32])
    def test_strides_do_not_matter(self, device, dtype, optim_info):
        # Not fused: torch's fused CPU steps (2.13) read strided weights as if they were contiguous.
        for impl in [{}, {"foreach": True}]:
            plain, strided = make_groups(device, dtype), make_groups(device, dtype)
            for group in strided:
                for p in group["params"]:
                    if p.ndim == 4:
                        p.data = p.data.contiguous(memory_format=torch.channels_last)
                    elif p.ndim:
                        p.data = p.data.repeat_interleave(2, -1)[..., ::2]
            reference = build(optim_info, plain, {"lr": 0.01, **impl})
            optimizer = build(optim_info, strided, {"lr": 0.01, **impl})
            train(reference, plain)
            train(optimizer, strided)
            self.assertEqual(parameters(plain), parameters(strided), rtol=1e-6, atol=1e-6)

    @optims(OURS, dtypes=[torch.float16, torch.bfloat16, torch.float32])
    def test_a_step_never_looks_at_a_value(self, device, dtype, optim_info):
        """Tensors without data cannot be read on the host: any attempt to would raise."""
        for optim_input in every_input(optim_info, device, dtype):
            groups = make_groups("meta", dtype)
            optimizer = build(optim_info, groups, optim_input.kwargs)
            set_gradients(groups, 0)
            optimizer.step()
            optimizer.step()

    @optims(OURS, dtypes=[torch.float64])
    def test_autograd_runs_through_a_differentiable_step(self, device, dtype, optim_info):
        for optim_input in optim_info.optim_inputs_func(device):
            kwargs = {k: v for k, v in optim_input.kwargs.items() if k != "lr"}
            weights = torch.randn(3, 4, device=device, dtype=dtype, requires_grad=True)
            gradient = torch.randn(3, 4, device=device, dtype=dtype, requires_grad=True)
            rate = torch.tensor(0.1, device=device, dtype=dtype, requires_grad=True)

            def stepped(w: Tensor, g: Tensor, lr: Tensor) -> Tensor:
                moving = normalize(w)  # so that UnitNormSGD has nothing to normalize, which is not recorded
                optimizer = optim_info.optim_cls([moving], lr=lr, differentiable=True, **kwargs)  # noqa: B023
                for _ in range(2):
                    moving.grad = g.clone()
                    optimizer.step()
                return moving

            assert torch.autograd.gradcheck(stepped, (weights, gradient, rate))

    @optims(OURS, dtypes=[torch.float32])
    def test_a_capturable_rate_is_a_tensor_that_schedulers_change_in_place(self, device, dtype, optim_info):
        groups = make_groups(device, dtype)
        optimizer = build(optim_info, groups, {"lr": 0.01, "capturable": True})
        rates = [group["lr"] for group in optimizer.param_groups]
        assert all(isinstance(rate, Tensor) for rate in rates)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        train(optimizer, groups, last=1)
        scheduler.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            assert group["lr"] is rate
            self.assertEqual(float(rate), 0.005)


instantiate_device_type_tests(TestBattery, globals(), only_for=("cpu", "cuda"))
