"""The networks of the zoo that gauges are tried on, and how weights are compared."""

from torch import nn

NETWORKS = [
    "arch1",
    "arch2 training",
    "arch2 evaluation",
    "vgg training",
    "resnet training",
    "residual mlp",
    "segnet",
    "u-net",
    "grouped and depthwise",
    "weight norm",
    "gpt, layer norm, gelu",
    "tied embeddings",
    "llama",
    "gpt, rms norm, squared relu",
    "nn.MultiheadAttention across",
    "soft experts",
    "relu rnn",
]


def distance(one: nn.Module, other: nn.Module) -> float:
    """Largest difference of parameters, each relative to the largest entry of its tensor."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(
        float((a - b).detach().abs().max() / a.detach().abs().max().clamp(min=1e-300)) for a, b in pairs
    )
