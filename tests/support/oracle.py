"""The true dimension of a model's group of rescalings, measured without looking at its structure.

In training mode with running statistics the outputs of a later evaluation count, too.

A rescaling changes no output at any weights: its vector of exponents v satisfies J(theta) diag(theta) v = 0,
with J the Jacobian of the outputs, for all theta. Stacked over random weights and inputs, the null space is
the group.
"""

import copy
import types
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

WEIGHTS = 10  # at least; fewer count units of small ReLU networks that happen to be dead at all of them
ROWS = 3  # outputs looked at, times the number of weights
LARGEST = (
    1e8  # derivative that is believed: a unit that is constant on all inputs has no deviation to divide by
)


def exact(model: nn.Module) -> nn.Module:
    """The model in float64, its normalizations with an eps too small to be felt."""
    model = model.double()
    for module in model.modules():
        if isinstance(getattr(module, "eps", None), float):
            module.eps = 1e-30
    return model


def moving(model: nn.Module) -> dict[str, Tensor]:
    """What may be rescaled: parameters, and the statistics of batch normalization."""
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    return dict(model.named_parameters()) | buffers


class Later(nn.Module):
    """What a model returns in training mode, and what it would then return in evaluation."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = written_out(model)
        self.norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]

    def forward(self, *arguments: Tensor) -> Tensor:
        found: list[Tensor] = []
        for evaluation in dict.fromkeys((not self.training, True)) if self.norms else (False,):
            for norm in self.norms:
                norm.evaluation = evaluation
            output = self.model(*arguments)
            found.append((output[0] if isinstance(output, tuple) else output).flatten())
        return torch.cat(found)


def written_out(model: nn.Module) -> nn.Module:
    """The model with batch normalization by its statistics as a formula: torch's has no gradient for them."""

    def forward(self: _BatchNorm, x: Tensor) -> Tensor:
        shape = [1, -1] + [1] * (x.dim() - 2)
        batch = [0, *range(2, x.dim())]
        mean, variance = self.running_mean, self.running_var
        if self.training and not self.evaluation:
            mean, variance = x.mean(batch), x.var(batch, correction=0)
            self.after = self.running_mean + mean / 2, self.running_var + variance / 2
        elif self.training:
            mean, variance = self.after
        mean, variance, gain, shift = (one.reshape(shape) for one in (mean, variance, self.weight, self.bias))
        return (x - mean) / variance.sqrt() * gain + shift

    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.forward = types.MethodType(forward, module)
    return model


def true_dimension(model: nn.Module, inputs: Callable[[torch.Generator], tuple[Tensor, ...]]) -> int:
    """Measure the dimension; for models of up to a few hundred weights."""
    model = Later(exact(copy.deepcopy(model))).train(model.training)
    generator = torch.Generator().manual_seed(1)
    shapes = moving(model)
    size = sum(tensor.numel() for tensor in shapes.values())
    gram = torch.zeros(size, size, dtype=torch.float64)
    settings = rows = 0
    while settings < WEIGHTS or rows < ROWS * size:
        weights = {name: _random(name, tensor, generator) for name, tensor in shapes.items()}
        found = _scaled_jacobian(model, weights, inputs(generator))
        if not bool(found.abs().max() < LARGEST):
            continue
        gram += found.T @ found / found.square().sum().clamp(min=1e-300)
        settings, rows = settings + 1, rows + len(found)
    values = torch.linalg.eigvalsh(gram)
    return int((values < 1e-13).sum())


def _scaled_jacobian(model: nn.Module, weights: dict[str, Tensor], arguments: tuple[Tensor, ...]) -> Tensor:
    """Derivatives of all outputs by the logarithms of all weights."""
    leaves = {name: weight.requires_grad_() for name, weight in weights.items()}
    output = functional_call(model, leaves, arguments)
    rows: list[Tensor] = []
    for one in output:
        gradients = torch.autograd.grad(one, list(leaves.values()), retain_graph=True, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    torch.zeros(weight.numel())
                    if gradient is None
                    else (gradient * weight).detach().flatten()
                    for gradient, weight in zip(gradients, leaves.values(), strict=True)
                ]
            )
        )
    return torch.stack(rows)


def _random(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Weights of no particular kind; variances are positive."""
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return drawn.square() + 0.1 if name.endswith("running_var") else drawn
