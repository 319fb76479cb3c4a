"""The updates a run can name: the paper's three, SGD in the full metric, and any ``torch.optim`` optimizer.

    b-sgd, sm, un             pure steps of :mod:`symoptim.updates`, for all their runs at once
    full, geometric           SGD in the full metric of the network's own symmetries, for all runs at once
    adamw, invariant-adamw    a ``torch.optim`` optimizer per run

Add another one with ``UPDATES["nadam"] = Driven("NAdam", make)``. Rates are for the loss summed over a batch;
see :class:`.run.Run`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import AdamW, Optimizer

from symoptim.errors import OptionError
from symoptim.metric.gauge import Gauge, Geometric, Pooled
from symoptim.optim.invariant import invariant
from symoptim.optim.sgd import ScaledSGD, UnitNormSGD
from symoptim.routing import Geometry
from symoptim.updates.catalog import PLAIN, Update

Groups = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Pure:
    """An update without state: which step each geometry gets."""

    title: str
    updates: Mapping[Geometry, Update]


@dataclass(frozen=True, slots=True)
class Full:
    """SGD in the full metric, which is computed from the network's symmetries."""

    title: str
    gauge: Gauge


@dataclass(frozen=True, slots=True)
class Driven:
    """An optimizer of its own for every run: ``make(groups, lr, capturable)`` builds it.

    ``lr`` is a 1-element Tensor that changes between epochs; ``capturable`` is true where steps will be
    captured in a CUDA graph.
    """

    title: str
    make: Callable[[Groups, Tensor, bool], Optimizer]


UPDATES: dict[str, Pure | Full | Driven] = {
    "b-sgd": Pure("B-SGD", dict.fromkeys(ScaledSGD.updates, PLAIN)),
    "sm": Pure("SM", ScaledSGD.updates),
    "un": Pure("UN", UnitNormSGD.updates),
    "full": Full("full", Pooled()),
    "geometric": Full("geometric", Geometric()),
    "adamw": Driven("AdamW", lambda groups, lr, capturable: AdamW(groups, lr=lr, capturable=capturable)),
    "invariant-adamw": Driven(
        "invariant AdamW",
        lambda groups, lr, capturable: invariant(AdamW, groups, lr=lr, capturable=capturable),
    ),
}
"""Every update by its name."""


def require_updates(names: Iterable[str]) -> None:
    """Refuse names that are not registered.

    >>> require_updates(["sm", "sgd"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    symoptim.errors.OptionError: unknown update 'sgd'; choose from b-sgd, sm, un, full, geometric, adamw, ...
    """
    for name in names:
        if name not in UPDATES:
            raise OptionError(f"unknown update '{name}'; choose from {', '.join(UPDATES)}")
        if not isinstance(UPDATES[name], Pure | Full | Driven):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"UPDATES['{name}'] must be a Pure, a Full or a Driven, got {UPDATES[name]!r}")
