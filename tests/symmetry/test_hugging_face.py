"""Discovery on architectures as Hugging Face writes them, small and with random weights."""

import functools
from typing import NamedTuple

import pytest
import torch
from torch import nn

from symoptim.symmetry.certify import certify
from symoptim.symmetry.discover import discover
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.hugging_face import CASES, Inputs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of other people's making


class Found(NamedTuple):
    model: nn.Module
    inputs: Inputs
    spec: SymmetrySpec


@functools.cache
def found(name: str, attention: str | None = None) -> Found:
    """A model with what discovery says about it; ``attention`` is the implementation, torch's by default."""
    transformers = pytest.importorskip("transformers", reason="make test-all installs transformers")
    transformers.logging.set_verbosity_error()
    case = CASES[name]
    torch.manual_seed(0)
    config = getattr(transformers, case.config)(**case.settings)
    if attention:
        config._attn_implementation = attention
    model = getattr(transformers, case.model)(config).eval()
    model.set_experts_implementation("batched_mm")  # the default has no float64
    inputs = case.inputs()
    return Found(shaken(model), inputs, discover(model, (), inputs))


@torch.no_grad()
def shaken(model: nn.Module) -> nn.Module:
    """The model, with nothing in it zero or one: what is zero has any scale."""
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.add_(torch.rand_like(buffer))
    return model


@pytest.mark.parametrize("name", CASES)
def test_every_operation_is_known(name: str) -> None:
    assert not found(name).spec.unknown


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_certified(name: str) -> None:
    model, inputs, spec = found(name)
    assert len(spec) > 0
    certificate = certify(spec, model, (), inputs)
    assert certificate.output_error < 1e-10
    assert certificate.noether_residual < 1e-11
    assert certificate.holds


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.dimension])
def test_as_many_rescalings_are_found_as_the_architecture_says(name: str) -> None:
    assert len(found(name).spec) == CASES[name].dimension


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "bert", "vit", "opt", "gpt-neox"])
def test_attention_written_out_has_the_same_group(name: str) -> None:
    spec = found(name, "eager").spec
    assert not spec.unknown
    assert len(spec) == CASES[name].dimension
