"""What surrounds the steps: state, copies, groups, scalers, schedulers, refusals; on torch's machinery."""

import pickle
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optims

from symoptim.errors import GradientError
from tests.support.battery import STEPS, Battery, build, every_input, state_of, train
from tests.support.infos import ALL, OURS, make_groups, parameters, set_gradients


class TestState(Battery):
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
        for group in (*together, *apart):
            group["normalize"] = True  # which is meant, where the optimizer is UnitNormSGD
        at_once = build(optim_info, together, {"lr": 0.01})
        later = build(optim_info, apart[:1], {"lr": 0.01})
        for group in apart[1:]:
            later.add_param_group(group)
        train(at_once, together)
        train(later, apart)
        self.assert_same(at_once, later, exact=True)

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


instantiate_device_type_tests(TestState, globals(), only_for=("cpu", "cuda"))
