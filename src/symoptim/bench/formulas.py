r"""What every contestant claims to compute, in float64: the meaning its gate holds it to.

ours            the pure step of :mod:`symoptim.updates.step`
SGD, AdamW      the recurrences of PyTorch's documentation, AdamW with its decay of 0.01
geoopt          the unit-norm step; with momentum as its code has it: the buffer starts at the gradient of
                the surrounding space, so that the first step is 1 + momentum times as long
SGDP            SGD whose update loses its part along the filters where gradients are orthogonal to them
ObliqueSGD      the unit-norm step without momentum, whatever is asked: its buffer is never written to
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from symoptim.geometry.filters import Axes, inner
from symoptim.geometry.unit_norm import project_to_tangent, retract
from symoptim.routing import Geometry
from symoptim.updates.catalog import PLAIN, SCALED, UNIT_NORM, Update
from symoptim.updates.step import StepOptions, step

Updates = Mapping[Geometry, Update]

SCALED_UPDATES: Updates = {"rows": SCALED, "columns": SCALED, "plain": PLAIN}
UNIT_NORM_UPDATES: Updates = {"rows": UNIT_NORM, "columns": PLAIN, "plain": PLAIN}
PLAIN_UPDATES: Updates = {"rows": PLAIN, "columns": PLAIN, "plain": PLAIN}

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 1e-2
"""AdamW's defaults."""


@dataclass(kw_only=True, slots=True)
class Piece:
    """Filters of a weight in float64, and what a formula remembers of them."""

    weights: Tensor
    gradient: Tensor
    geometry: Geometry
    over: Axes
    memory: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def recall(self, name: str) -> Tensor:
        """What is remembered; zero at first."""
        return self.memory.get(name, torch.zeros_like(self.weights))


Formula = Callable[[Piece, float, float], None]
"""Steps a piece with a rate and a momentum."""


def pure(updates: Updates) -> Formula:
    """The pure step of an update by geometry."""

    def formula(piece: Piece, rate: float, momentum: float) -> None:
        stepped = step(
            updates[piece.geometry],
            piece.weights,
            piece.gradient,
            StepOptions(lr=rate, momentum=momentum),
            buffer=piece.memory.get("momentum"),
            over=piece.over,
        )
        piece.weights = stepped.weights
        if stepped.buffer is not None:
            piece.memory["momentum"] = stepped.buffer

    return formula


def adamw(piece: Piece, rate: float, momentum: float) -> None:
    """AdamW with its defaults; it has no ``momentum``."""
    del momentum
    number = piece.recall("number") + 1
    first = BETAS[0] * piece.recall("first") + (1 - BETAS[0]) * piece.gradient
    second = BETAS[1] * piece.recall("second") + (1 - BETAS[1]) * piece.gradient.square()
    piece.memory |= {"number": number, "first": first, "second": second}
    ahead, spread = first / (1 - BETAS[0] ** number), second / (1 - BETAS[1] ** number)
    piece.weights = piece.weights * (1 - rate * DECAY) - rate * ahead / (spread.sqrt() + EPS)


def geoopt(piece: Piece, rate: float, momentum: float) -> None:
    """RiemannianSGD on spheres, Euclidean for what has no rows."""
    if not momentum:
        pure(UNIT_NORM_UPDATES)(piece, rate, 0.0)
        return
    on_sphere = piece.geometry == "rows"
    w, g = piece.weights, piece.gradient
    tangent = project_to_tangent(w, g, piece.over) if on_sphere else g
    buffer = momentum * piece.memory.get("momentum", g) + tangent
    piece.weights = retract(w, -rate * buffer, piece.over) if on_sphere else w - rate * buffer
    piece.memory["momentum"] = project_to_tangent(piece.weights, buffer, piece.over) if on_sphere else buffer


def sgdp(piece: Piece, rate: float, momentum: float) -> None:
    """SGDP where gradients of rows are orthogonal to them, and those of anything else are not."""
    w = piece.weights
    buffer = momentum * piece.recall("momentum") + piece.gradient
    if piece.geometry == "rows" and w.ndim > 1:
        buffer = buffer - inner(w, buffer, piece.over) / inner(w, w, piece.over) * w
    piece.memory["momentum"] = buffer
    piece.weights = w - rate * buffer


def oblique(piece: Piece, rate: float, momentum: float) -> None:
    """ObliqueSGD for rows, SGD for anything else."""
    pure(UNIT_NORM_UPDATES)(piece, rate, 0.0 if piece.geometry == "rows" else momentum)
