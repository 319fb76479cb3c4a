"""Find the rescalings of a small transformer, certify them, draw them, and move along them.

python examples/discover.py [picture.svg]
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

import symoptim
from symoptim.symmetry.drawing import draw


class Transformer(nn.Module):
    """One block: attention and a gated layer, each behind a norm and around a shortcut."""

    def __init__(self, vocabulary: int = 50, width: int = 16, hidden: int = 24) -> None:
        """Make it, with two heads and random weights."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.attention_norm, self.gated_norm, self.last_norm = (nn.RMSNorm(width) for _ in range(3))
        self.query, self.key, self.value, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every place."""
        x = self.embedding(tokens)
        seen = self.attention_norm(x)
        query, key, value = (
            part(seen).unflatten(-1, (2, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(-2))
        seen = self.gated_norm(x)
        x = x + self.down(silu(self.gate(seen)) * self.up(seen))
        return self.head(self.last_norm(x))


def main(picture: Path) -> None:
    """Print what is found, and write the picture."""
    torch.manual_seed(0)
    model, tokens = Transformer(), torch.randint(50, (2, 8))
    spec = symoptim.discover(model, (tokens,))
    print(spec)
    print(spec.certify(model, (tokens,)))
    with torch.no_grad():
        before = model(tokens)
        spec.rescale_(model, spec.random(spread=3.0))  # factors between 1/20 and 20
        change = float((model(tokens) - before).abs().max())
    print(f"outputs after rescaling differ by {change:.1e} (float32)")
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(draw(spec), encoding="utf-8")
    print(f"written: {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/transformer.svg"))
