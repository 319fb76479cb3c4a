"""Our optimizers as entries for torch's own optimizer test machinery."""

import unittest
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, AdamW, NAdam, RMSprop
from torch.testing._internal import common_optimizers as torch_optimizers
from torch.testing._internal.common_methods_invocations import DecorateInfo
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerErrorEnum,
    OptimizerInfo,
    OptimizerInput,
)

from symoptim import ScaledSGD, UnitNormSGD
from symoptim.errors import GradientError, OptionError, ZeroFilterError
from symoptim.optim.invariant import Reparametrized, reparametrize

Group = dict[str, Any]


def make_groups(device: str, dtype: torch.dtype) -> list[Group]:
    """One group of every geometry, shapes repeated so that there is something to stack."""
    generator = torch.Generator().manual_seed(3)

    def parameter(*shape: int) -> nn.Parameter:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return nn.Parameter(values.to(device=device, dtype=dtype))

    return [
        {"params": [parameter(5, 3), parameter(5, 3), parameter(4, 2, 3, 3)], "geometry": "rows"},
        {"params": [parameter(3, 4, 2, 2), parameter(3, 4, 2, 2)], "geometry": "rows", "axis": 1},
        {"params": [parameter(6, 4), parameter(3, 4)], "geometry": "columns"},
        {"params": [parameter(5), parameter(5), parameter(7, 2), parameter()], "geometry": "plain"},
    ]


def parameters(groups: list[Group]) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def set_gradients(groups: list[Group], seed: int) -> None:
    """The same gradients for the same seed, whatever the precision."""
    generator = torch.Generator().manual_seed(seed)
    for p in parameters(groups):
        drawn = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.grad = drawn.to(device=p.device, dtype=p.dtype)


def _scaled_inputs(device: str, dtype: torch.dtype | None = None) -> list[OptimizerInput]:
    return [
        OptimizerInput(params=None, kwargs=kwargs, desc=desc)
        for kwargs, desc in [
            ({"lr": 0.01}, "plain"),
            ({"lr": torch.tensor(0.01)}, "Tensor lr"),
            ({"lr": 0.01, "momentum": 0.9}, "momentum"),
            ({"lr": 0.01, "momentum": 0.9, "nesterov": True}, "nesterov"),
            ({"lr": 0.01, "maximize": True}, "maximize"),
            ({"lr": 0.01, "momentum": 0.9, "maximize": True, "capturable": True}, "capturable"),
        ]
    ]


def _decayed_inputs(device: str, dtype: torch.dtype | None = None) -> list[OptimizerInput]:
    decay = {"lr": 0.01, "weight_decay": 0.1}
    return [
        *_scaled_inputs(device, dtype),
        OptimizerInput(params=None, kwargs=decay, desc="weight_decay"),
        OptimizerInput(params=None, kwargs={**decay, "momentum": 0.9, "nesterov": True}, desc="all"),
    ]


def _bad_option(
    kwargs: dict[str, Any], says: str, params: Any = None, kind: type[Exception] = OptionError
) -> ErrorOptimizerInput:
    given = params if params is not None else [nn.Parameter(torch.ones(2, 2))]
    return ErrorOptimizerInput(
        OptimizerInput(params=given, kwargs=kwargs, desc=says), error_type=kind, error_regex=says
    )


def _bad_rates() -> list[ErrorOptimizerInput]:
    return [
        _bad_option({"lr": -0.5}, "lr must be a finite number >= 0, got -0.5"),
        _bad_option({"lr": float("nan")}, "lr must be a finite number >= 0, got nan"),
        _bad_option({"lr": float("inf")}, "lr must be a finite number >= 0, got inf"),
        _bad_option({"lr": "fast"}, "lr must be a number or a 1-element Tensor, got 'fast'"),
        _bad_option({"lr": torch.tensor(1j)}, "lr must be a number or a 1-element Tensor"),
        _bad_option({"lr": torch.tensor(-1.0)}, "lr must be a finite number >= 0, got -1.0"),
        _bad_option({"momentum": -1}, "momentum must be a finite number >= 0, got -1"),
        _bad_option({"fused": "no"}, "fused must be True, False or None, got 'no'"),
        _bad_option({"momentum": "much"}, "momentum must be a finite number >= 0, got 'much'"),
        _bad_option({"weight_decay": float("nan")}, "weight_decay must be a finite number >= 0, got nan"),
        _bad_option({"nesterov": True}, "nesterov=True needs momentum > 0"),
        _bad_option({"foreach": True, "differentiable": True}, "leave foreach at None"),
        _bad_option({"foreach": True, "fused": True}, "fused=True and foreach=True cannot be combined"),
        _bad_option({"differentiable": True, "fused": True}, "fused=True and differentiable=True cannot"),
        _bad_option(
            {"differentiable": True},
            "needs float32 or float64",
            params=[nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))],
        ),
    ]


def bad_parameters() -> list[ErrorOptimizerInput]:
    """What no optimizer of ours takes, the charted ones included."""
    weight, bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    return [
        _bad_option(
            {}, "unknown geometry 'row'; choose one of rows", params=[{"params": weight, "geometry": "row"}]
        ),
        _bad_option({}, "axis must be 0 or 1.*got 2", params=[{"params": weight, "axis": 2}]),
        _bad_option({}, "axis must be 0 or 1.*got True", params=[{"params": weight, "axis": True}]),
        _bad_option({}, "axis must be 0 or 1.*got '0'", params=[{"params": weight, "axis": "0"}]),
        _bad_option({}, r"parameter 0 of its group has shape \(2,\).*geometry='plain'", params=[bias]),
        _bad_option({}, r"parameter 'b' has shape \(2,\)", params=[("b", bias)]),
        _bad_option(
            {},
            "dtype torch.complex64; only real floating point",
            params=[nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))],
        ),
        _bad_option({}, "empty parameter list", params=[], kind=ValueError),
    ]


def _errors(device: str, dtype: torch.dtype) -> list[ErrorOptimizerInput]:
    torch_own = torch_optimizers.get_error_inputs_for_all_optims(device, dtype)
    return [*torch_own, *_bad_rates(), *bad_parameters(), _sparse_gradient()]


def _unit_norm_errors(device: str, dtype: torch.dtype) -> list[ErrorOptimizerInput]:
    holed = nn.Parameter(torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    return [
        *_errors(device, dtype),
        _bad_option({"weight_decay": 0.1}, "weight_decay=0.1 has no effect on unit-norm rows"),
        _bad_option({"normalize": 1}, "normalize must be True, False or None, got 1"),
        _bad_option({"normalize": False}, r"normalize=False, and rows are not of unit norm.*factor of 1\.41"),
        _bad_option(
            {},
            "rows without a direction .*too small or large to square",
            params=[nn.Parameter(torch.full((2, 2), 1e25))],
            kind=ZeroFilterError,
        ),
        _bad_option(
            {},
            r"parameter 'w' has rows without a direction \(1; zero",
            params=[("w", holed)],
            kind=ZeroFilterError,
        ),
    ]


def _sparse_gradient() -> ErrorOptimizerInput:
    weight = nn.Parameter(torch.eye(2))
    weight.grad = torch.eye(2).to_sparse()
    return ErrorOptimizerInput(
        OptimizerInput(params=[weight], kwargs={}, desc="sparse gradient"),
        error_on=OptimizerErrorEnum.STEP_ERROR,
        error_type=GradientError,
        error_regex=r"gradient of parameter 0 of its group is sparse",
    )


def _charted_errors(device: str, dtype: torch.dtype) -> list[ErrorOptimizerInput]:
    return [*bad_parameters(), _sparse_gradient()]


def _charted(wrapped: type, inputs: Any, *, fused_on: tuple[str, ...] = (), skips: Any = ()) -> OptimizerInfo:
    return OptimizerInfo(
        reparametrize(wrapped, Reparametrized),
        optim_inputs_func=inputs,
        optim_error_inputs_func=_charted_errors,
        supported_impls=("foreach", "fused") if fused_on else ("foreach",),
        supports_fused_on=fused_on,
        supports_complex=False,
        skips=skips,
    )


def _ours(kind: type, inputs: Any, errors: Any) -> OptimizerInfo:
    return OptimizerInfo(
        kind,
        optim_inputs_func=inputs,
        optim_error_inputs_func=errors,
        supported_impls=("foreach", "differentiable", "fused"),
        supports_fused_on=("cpu", "cuda"),
        has_capturable_arg=True,
        supports_complex=False,
    )


def _normalized_inputs(device: str, dtype: torch.dtype | None = None) -> list[OptimizerInput]:
    """The same for weights that are drawn at random, and normalized on purpose."""
    inputs = _scaled_inputs(device, dtype)
    for one in inputs:
        one.kwargs["normalize"] = True
    return inputs


OURS = [_ours(ScaledSGD, _decayed_inputs, _errors), _ours(UnitNormSGD, _normalized_inputs, _unit_norm_errors)]

_LATE_ADAGRAD_GROUPS = DecorateInfo(
    unittest.skipIf(
        torch.__version__ < "2.13", "torch's Adagrad makes its state in the constructor: no groups later"
    ),
    "TestState",
    "test_a_group_added_later_is_trained_like_one_given_at_first",
)

CHARTED = [
    _charted(SGD, torch_optimizers.optim_inputs_func_sgd, fused_on=("cpu", "cuda")),
    _charted(AdamW, torch_optimizers.optim_inputs_func_adamw, fused_on=("cpu", "cuda")),
    _charted(NAdam, torch_optimizers.optim_inputs_func_nadam),
    _charted(RMSprop, torch_optimizers.optim_inputs_func_rmsprop),
    _charted(
        Adagrad,
        torch_optimizers.optim_inputs_func_adagrad,
        fused_on=("cpu",),
        skips=(_LATE_ADAGRAD_GROUPS,),
    ),
]

ALL = OURS + CHARTED
