"""Forward and backward of a model are timed as it would be trained, or it is said why they cannot be."""

from pathlib import Path

import pytest
import torch
from torch import nn

from symoptim.bench.cases import Example, case_of
from symoptim.bench.clock import CpuClock
from symoptim.bench.measure import Budget
from symoptim.bench.optimizers import contestants_named
from symoptim.bench.records import Journal, read_steps
from symoptim.bench.run import Plan, carry_out, session_of
from symoptim.bench.tensors import CaseTensors
from symoptim.bench.training import loss_of, seconds_of_passes

CPU = torch.device("cpu")


class Outputs(dict[str, torch.Tensor]):
    """Outputs with a loss, as models of Hugging Face return them."""

    @property
    def loss(self) -> torch.Tensor:
        return self["loss"]


class Embedding(nn.Module):
    """Takes whole numbers and others."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, tokens: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
        assert tokens.dtype == torch.int64
        return self.table(tokens) * factor


def test_the_loss_of_a_model_is_its_own_or_the_mean_of_its_outputs() -> None:
    out = torch.ones(2, requires_grad=True)
    assert loss_of(Outputs(loss=3 * out.sum(), logits=out)).item() == 6
    assert loss_of((out, [2 * out], torch.ones(4))).item() == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_are_in_the_precision_of_the_model(dtype: torch.dtype) -> None:
    example = Example(Embedding(), (torch.tensor([[1, 2]]),), {"factor": torch.ones(3)})
    tensors = CaseTensors(case_of("e", example), CPU, dtype, symmetries=False)
    assert seconds_of_passes(tensors, CpuClock(1)) > 0
    (pair,) = tensors.pairs
    assert pair.gradient[1].abs().min() > 0
    assert not pair.gradient[0].any()


def test_why_there_are_no_passes_is_recorded(tmp_path: Path) -> None:
    class NoGradient(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input).detach()

    case = case_of("no gradient", Example(NoGradient(3, 2), (torch.rand(1, 3),)))
    plan = Plan(
        cases=(case,),
        contestants=contestants_named(("sgd-fused",), compiled=False),
        momenta=(0.0,),
        dtypes=("float32",),
        device=CPU,
        budget=Budget(turns=1, seconds=1),
    )

    class Silent:
        def expect(self, amount: float) -> None: ...
        def done(self, amount: float, words: str) -> None: ...

    path = tmp_path / "bench.jsonl"
    carry_out(plan, Journal(path, session_of(CPU)), Silent())
    (step,) = read_steps([path])
    assert step.seconds is not None
    assert step.line["no_passes"].startswith("forward and backward fail in torch.float32: ")
