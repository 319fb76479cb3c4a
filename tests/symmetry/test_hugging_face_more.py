"""What is found on other architectures of Hugging Face holds for inputs that take other paths as well."""

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from symoptim import SymmetrySpec, discover
from symoptim.errors import OptionError, TraceError
from tests.support.hugging_face_found import FOUND, REFUSED
from tests.support.hugging_face_more import CASES, Inputs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of other people's making
EXACT = 1e-8
"""Changes of outputs, relative to the largest, that are rounding."""
NUDGE, MAGNIFIED, MOST_ROUNDING = 1e-12, 100, 1e-6
"""Relative changes of weights that show how much rounding is magnified, and how much more is accepted.

What magnifies rounding beyond the last would pass whatever is found: such a call shows nothing, and fails.
"""
SMALL, NO_EPS = 1e-3, 1e-30
"""What is taken for an eps, and what for none."""


class Wide(TorchDispatchMode):
    """Computes in float64 what a model wants in fewer digits, without eps."""

    ADDS = (
        "add",
        "add_",
        "clamp",
        "clamp_min",
        "native_layer_norm",
        "native_batch_norm",
        "native_group_norm",
    )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.__name__.split(".")[0]
        adds = name in self.ADDS or name.endswith("batch_norm") or "rms_norm" in name

        def changed(value: Any) -> Any:
            if isinstance(value, torch.dtype):
                return torch.float64 if value in (torch.float16, torch.bfloat16, torch.float32) else value
            return NO_EPS if adds and isinstance(value, float) and 0 < value <= SMALL else value

        return func(*tree_map(changed, tuple(args)), **tree_map(changed, dict(kwargs or {})))


@contextmanager
def float64() -> Iterator[None]:
    """New tensors are float64, and so are those that a model wants otherwise."""
    torch.set_default_dtype(torch.float64)
    try:
        with Wide():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def made(name: str, *, train: bool) -> nn.Module:
    """A model with nothing in it zero or one: what is zero has any scale."""
    transformers = pytest.importorskip("transformers", reason="make test-all installs transformers")
    transformers.logging.set_verbosity_error()
    kind = getattr(transformers, CASES[name].model)
    torch.manual_seed(0)
    model = kind(kind.config_class(**CASES[name].settings)).train(train)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the default has no float64
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer))
    return model


def calls_of(name: str) -> list[Inputs]:
    torch.manual_seed(1)
    return CASES[name].calls()


def outputs(model: nn.Module, calls: Sequence[Inputs]) -> list[list[Tensor] | None]:
    """Of all calls one after the other, and then in evaluation mode; None of those the model refuses."""
    found: list[list[Tensor] | None] = []
    modes = (True, False) if model.training else (False,)
    for train in modes:
        model.train(train)
        for seed, call in enumerate(calls):
            random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
            wide = {name: one.double() if one.is_floating_point() else one for name, one in call.items()}
            try:
                with torch.no_grad(), float64():
                    leaves = tree_leaves(model(**wide))
            except (ValueError, RuntimeError, IndexError, AssertionError):
                found.append(None)
            else:
                found.append([one.clone() for one in leaves if isinstance(one, Tensor)])
    return found


def difference(before: list[Tensor] | None, after: list[Tensor] | None) -> float:
    """The largest change, each output measured by its largest entry."""
    if before is None or after is None:
        return 0.0 if before is after else float("inf")
    worst = 0.0
    for one, other in zip(before, after, strict=True):
        if one.shape != other.shape:
            return float("inf")
        same = (one == other) | (one.isnan() & other.isnan())
        finite = one[one.isfinite()].abs()
        size = float(finite.max()) if finite.numel() else 1.0
        change = (one.double() - other.double())[~same].abs() / (size or 1.0)
        worst = max([worst, *change.nan_to_num(torch.inf, torch.inf).tolist()])
    return worst


def nudged(model: nn.Module, seed: int) -> nn.Module:
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.mul_(1 + NUDGE * drawn)
    return other


class Change(NamedTuple):
    """By how much a call's outputs change, and by how much rounding may change them."""

    call: int
    size: float
    rounding: float

    @property
    def wrong(self) -> bool:
        return self.size > EXACT + min(MAGNIFIED * self.rounding, MOST_ROUNDING)


def changes(spec: SymmetrySpec, model: nn.Module, calls: Sequence[Inputs]) -> Iterator[Change]:
    """What random elements do to outputs of all calls."""
    wide = copy.deepcopy(model).double()
    before = outputs(copy.deepcopy(wide), calls)
    for seed, spread in ((0, 1.0), (1, 2.0)):
        scaled = spec.rescale_(
            copy.deepcopy(wide), spec.random(seed=seed, spread=spread), tolerance=float("inf")
        )
        after = outputs(copy.deepcopy(scaled), calls)
        found = [difference(*pair) for pair in zip(before, after, strict=True)]
        felt = [0.0] * len(found)
        if max(found) > EXACT:
            for one, plain in ((wide, before), (scaled, after)):
                other = outputs(nudged(one, seed), calls)
                felt = [max(a, difference(*b)) for a, *b in zip(felt, plain, other, strict=True)]
        for call, pair in enumerate(zip(found, felt, strict=True)):
            yield Change(call, *pair)


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_found_holds_for_other_inputs_too(name: str, mode: str) -> None:
    model, calls = made(name, train=mode == "train"), calls_of(name)
    if (name, mode) in REFUSED:
        with pytest.raises((TraceError, OptionError), match=REFUSED[name, mode]):
            discover(model, (), calls[0])
        return
    spec = discover(model, (), calls[0])
    assert len(spec) >= FOUND.get(name, (0, 0))[("eval", "train").index(mode)]
    assert len(spec) or spec.paths or spec.unreached, "nothing is found, and nobody is told why"
    wrong = [change for change in changes(spec, model, calls) if change.wrong]
    assert not wrong, wrong
