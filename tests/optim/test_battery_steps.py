"""Properties of a step, for every optimizer, implementation and option, on torch's own machinery."""

import torch
from torch import Tensor, nn
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import optims

from symoptim import UnitNormSGD
from tests.support.battery import STEPS, Battery, build, every_input, implementations, state_of, train
from tests.support.infos import ALL, OURS, make_groups, parameters, set_gradients


class TestSteps(Battery):
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
        getattr(optim_info.optim_cls, "wrapped_class", optim_info.optim_cls)([nn.Parameter(torch.eye(2))])
        optimizer = build(optim_info, groups, {"lr": 0.01})
        calls: list[str] = []
        seen: list[Tensor] = []
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        optimizer.register_step_post_hook(lambda *_: seen.append(parameters(groups)[0].detach().clone()))
        train(optimizer, groups, last=2)
        assert calls == ["before", "after"] * 2
        assert torch.equal(seen[-1], parameters(groups)[0])

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
            if optim_input.kwargs.get("fused"):
                continue  # there is no kernel for tensors without data
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
                moving = w.clone()
                optimizer = optim_info.optim_cls([moving], lr=lr, differentiable=True, **kwargs)  # noqa: B023
                for _ in range(2):
                    moving.grad = g.clone()
                    optimizer.step()
                return moving

            assert torch.autograd.gradcheck(stepped, (weights, gradient, rate))


instantiate_device_type_tests(TestSteps, globals(), only_for=("cpu", "cuda"))
