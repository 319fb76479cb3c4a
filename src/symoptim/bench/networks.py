"""ResNet-50 and GPT-2 in full size, with random weights."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Bottleneck(nn.Module):
    """Three convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        """Make a block that gives four times ``width`` channels."""
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Add the convolutions to the shortcut."""
        found = self.relu(self.bn1(self.conv1(x)))
        found = self.relu(self.bn2(self.conv2(found)))
        return self.relu(self.bn3(self.conv3(found)) + self.downsample(x))


def resnet50() -> nn.Module:
    """ResNet-50 for ImageNet: 25.6 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Block(nn.Module):
    """Attention and a two-layer network, each behind a layer norm and around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        """Make a block."""
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two-layer network."""
        parts = self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).flatten(-2))
        return x + self.mlp_proj(gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 small, its output map tied to its embedding: 124 million parameters."""

    def __init__(self, vocabulary: int = 50257, context: int = 1024, width: int = 768) -> None:
        """Make the network; the numbers are OpenAI's."""
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(Block(width, 12) for _ in range(12)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.ln_f(self.h(self.wte(tokens) + self.wpe(positions))) @ self.wte.weight.T
