"""Many training runs at once: one network shape, a leading run axis, each run as if it were alone.

A :class:`Run` says what is trained (update, rate, schedule, stopping rule, seed); an :class:`Ensemble` trains
many of them on a :class:`Split`. ``UPDATES`` has the updates by name; add your own as a :class:`Driven`.
:mod:`symoptim.ensemble.fast` has a faster way to the same numbers for the paper's own networks.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symoptim.ensemble.ensemble import Ensemble as Ensemble
    from symoptim.ensemble.ensemble import Result as Result
    from symoptim.ensemble.epoch_rules import Epoch as Epoch
    from symoptim.ensemble.epoch_rules import Outcome as Outcome
    from symoptim.ensemble.images import Split as Split
    from symoptim.ensemble.registry import UPDATES as UPDATES
    from symoptim.ensemble.registry import Driven as Driven
    from symoptim.ensemble.registry import Full as Full
    from symoptim.ensemble.registry import Pure as Pure
    from symoptim.ensemble.run import Bold as Bold
    from symoptim.ensemble.run import Constant as Constant
    from symoptim.ensemble.run import Cosine as Cosine
    from symoptim.ensemble.run import EarlyStopping as EarlyStopping
    from symoptim.ensemble.run import Exponential as Exponential
    from symoptim.ensemble.run import FixedEpochs as FixedEpochs
    from symoptim.ensemble.run import Run as Run

__all__ = [
    "UPDATES",
    "Bold",
    "Constant",
    "Cosine",
    "Driven",
    "EarlyStopping",
    "Ensemble",
    "Epoch",
    "Exponential",
    "FixedEpochs",
    "Full",
    "Outcome",
    "Pure",
    "Result",
    "Run",
    "Split",
]

# Names are looked up when they are first used: a run is described without torch.
_HOMES = {
    **dict.fromkeys(("Ensemble", "Result"), "ensemble"),
    **dict.fromkeys(("Epoch", "Outcome"), "epoch_rules"),
    "Split": "images",
    **dict.fromkeys(("UPDATES", "Driven", "Full", "Pure"), "registry"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'symoptim.ensemble' has no attribute '{name}'")
    found = getattr(import_module(f"symoptim.ensemble.{_HOMES.get(name, 'run')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
