"""Loading a saved state: only one that means the same is taken, and nothing is changed by one that is not.

Momentum of the scaled metric is in other units than momentum of plain SGD, and a moment of AdamW in the
chart is in other coordinates than one outside. So every group remembers which optimizer it belongs to.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer

from symoptim.errors import CheckpointError

MEANING = ("optimizer", "geometry", "axis")
"""Keys of a group that say what its state means: which optimizer made it, for which filters."""


@contextmanager
def loading(optimizer: Optimizer) -> Generator[list[dict[str, Any]]]:
    """Guard a ``load_state_dict``; the list given receives the state dict as torch loads it.

    Args:
        optimizer: the optimizer that is about to load.

    Yields:
        A list that holds the state dict, after all of the user's own hooks, once it is loaded.
    """
    loaded: list[dict[str, Any]] = []
    kept = [{key: group[key] for key in MEANING} for group in optimizer.param_groups]

    def look(_: Optimizer, saved: dict[str, Any]) -> None:
        _require_same_meaning(kept, saved)
        loaded.append(saved)

    handle = optimizer.register_load_state_dict_pre_hook(look)
    try:
        yield loaded
    finally:
        handle.remove()
    for group, meaning in zip(optimizer.param_groups, kept, strict=True):
        group.update(meaning)


def _require_same_meaning(groups: list[dict[str, Any]], saved: dict[str, Any]) -> None:
    """Refuse a saved state of another meaning; one that is empty, whatever made it, has none."""
    if not saved["state"]:
        return
    for index, (group, other) in enumerate(zip(groups, saved["param_groups"], strict=False)):
        for key in MEANING:
            if other.get(key) != group[key]:
                raise CheckpointError(
                    f"group {index} has {key} {group[key]!r}, the saved state {other.get(key)!r}: its "
                    "momentum means something else. Build the optimizer as it was when the state was saved, "
                    "or start with a fresh one"
                )
