"""Loading a saved state: only one that means the same is taken, and nothing is changed by one that is not.

Momentum of the scaled metric is in other units than momentum of plain SGD, and a moment of AdamW in the
chart is in other coordinates than one outside. So every group remembers which optimizer it belongs to.
"""

from collections.abc import Callable, Generator, Mapping, Set
from contextlib import contextmanager
from itertools import chain
from typing import cast

from torch import Tensor
from torch.optim import Optimizer

from symoptim.errors import CheckpointError, first_few
from symoptim.optim.master_weights import State

MEANING = ("optimizer", "geometry", "axis", "gauge")
"""Keys of a group that say what its state means: whose it is, of which filters, in which gauge."""


@contextmanager
def loading(
    optimizer: Optimizer,
    *,
    check: Callable[[State], None],
    finish: Callable[[State], None],
    weights: Set[str] = frozenset(),
) -> Generator[None]:
    """Guard a ``load_state_dict``: refuse before anything is changed, keep what a load must not change.

    Args:
        optimizer: the optimizer that is about to load.
        check: looks at the state dict, its groups completed by those of the optimizer, and may refuse it.
        finish: called with the state dict once it is loaded, before the user's own hooks run.
        weights: keys of state that hold copies of weights, which mean the same in every geometry.

    Yields:
        Nothing; the load is to be made inside.
    """
    kept = [{key: group[key] for key in MEANING if key in group} for group in optimizer.param_groups]
    defaults = optimizer.defaults
    options = [{key: group[key] for key in defaults if key in group} for group in optimizer.param_groups]
    final: list[State] = []

    def before(_: Optimizer, saved: State) -> None:
        _require_state_dict(saved)
        _require_states(saved)
        _require_same_groups(optimizer, saved, weights)
        _require_same_partition(optimizer, saved, weights)
        _require_same_meaning(kept, saved, weights)
        both = zip(optimizer.param_groups, saved["param_groups"], kept, strict=False)
        merged = [{**group, **other, **meaning} for group, other, meaning in both]
        check({**saved, "param_groups": merged})
        final.append(saved)

    def after(_: Optimizer) -> None:
        for group, meaning, own in zip(optimizer.param_groups, kept, options, strict=True):
            group.update({key: own[key] for key in own if key not in group})  # as it was checked
            group.update(meaning)
        finish(final[0])

    # The user's hooks before the load have had their say when ours looks; those after it see our result.
    first = optimizer.register_load_state_dict_pre_hook(before)
    last = optimizer.register_load_state_dict_post_hook(after, prepend=True)
    try:
        yield
    finally:
        first.remove()
        last.remove()


def _require_state_dict(saved: State) -> None:
    """Refuse what is no saved state of an optimizer at all."""
    if "state" in saved and "param_groups" in saved:
        return
    inside = [key for key, value in saved.items() if isinstance(value, Mapping) and "param_groups" in value]
    what = f"and this one has {first_few(map(repr, saved))}" if saved else "and this one is empty"
    if saved and all(isinstance(value, Tensor) for value in saved.values()):
        what = f"and these are the weights of a model ({first_few(map(repr, saved))})"
    way_out = f"checkpoint[{inside[0]!r}]" if inside else "what optimizer.state_dict() returned"
    raise CheckpointError(
        f"the saved state of an optimizer has 'state' and 'param_groups', {what}: load {way_out}"
    )


def _require_states(saved: State) -> None:
    """Refuse what is no state of a parameter; under keys of their own, hooks may keep anything."""
    for place in chain.from_iterable(group["params"] for group in saved["param_groups"]):
        if not isinstance(saved["state"].get(place, {}), dict):
            raise CheckpointError(
                f"the saved state of parameter {place} is {saved['state'][place]!r}, not a dict: the "
                "checkpoint is damaged, or of something else than an optimizer"
            )


def _has_meaning(saved: State, weights: Set[str]) -> bool:
    """Whether a saved state holds more than weights."""
    states = saved["state"].values()
    return not all(isinstance(state, dict) and set(cast(State, state)) <= weights for state in states)


def _require_same_groups(optimizer: Optimizer, saved: State, weights: Set[str]) -> None:
    """Refuse a saved state in which parameters of the same names have other geometries.

    So it is if groups were made once before and once after a weight was trained that begins at zero. That
    they are of another optimizer is said elsewhere.
    """
    if _makers(optimizer.param_groups) != _makers(saved["param_groups"]):
        return
    mine, theirs = _geometries(optimizer.param_groups), _geometries(saved["param_groups"])
    moved = [name for name, there in theirs.items() if mine.get(name, there) != there]
    alike = [len(group["params"]) for group in optimizer.param_groups] == [
        len(group["params"]) for group in saved["param_groups"]
    ]
    if not moved or (alike and not _has_meaning(saved, weights)):
        return
    here, there = mine[moved[0]], theirs[moved[0]]
    change = f"'{here}' here, and '{there}' in the saved state"
    if "plain" in (here, there):
        when = "now" if here == "plain" else "then"
        change += f". Weights that are zero as a whole are plain, as these may have been {when}"
    wanted = "{name: group['geometry'] for group in saved['param_groups'] for name in group['param_names']}"
    if len(moved) <= 4:
        wanted = str({name: theirs[name] for name in moved})
    named = ", ".join(f"'{name}'" for name in moved[:4])
    raise CheckpointError(
        f"parameter {named}{f' and {len(moved) - 4} more' if moved[4:] else ''}: {change}. Make the groups "
        f"that were saved: symoptim.param_groups(model, overrides={wanted})"
    )


def _require_same_partition(optimizer: Optimizer, saved: State, weights: Set[str]) -> None:
    """Refuse a saved state of other groups, or of parameters in another order, which torch goes by."""
    mine, theirs = optimizer.param_groups, saved["param_groups"]
    if _makers(mine) != _makers(theirs) and _has_meaning(saved, weights):
        return  # of another optimizer, which is said elsewhere
    sizes = [[len(group["params"]) for group in groups] for groups in (mine, theirs)]
    names = [[group.get("param_names") for group in groups] for groups in (mine, theirs)]
    if sizes[0] == sizes[1] and (names[0] == names[1] or _sorted(names[0]) != _sorted(names[1])):
        return  # other names may be those of the same model inside another one
    raise CheckpointError(
        f"the saved state has {_in_words(theirs)}, and here {_are(mine)}: make the optimizer of the same "
        "groups in the same order, as it was when the state was saved (all of them in groups=[...], where it "
        "takes a model, or by add_param_group), and load then"
    )


def _sorted(names: list[list[str] | None]) -> list[str]:
    return sorted(chain.from_iterable(some or [] for some in names))


def _are(groups: list[State]) -> str:
    return f"{'is' if len(groups) == 1 else 'are'} {_in_words(groups)}"


def _in_words(groups: list[State]) -> str:
    """How many groups these are, of how many parameters, and the first of their names."""
    parts = "; ".join(map(_contents, groups[:4])) + (f"; and {len(groups) - 4} more" if groups[4:] else "")
    return f"{len(groups)} group{'' if len(groups) == 1 else 's'} ({parts})"


def _contents(group: State) -> str:
    count, names = len(group["params"]), group.get("param_names")
    number = f"{count} parameter{'' if count == 1 else 's'}"
    few = ", ".join(names[:2]) + (", ..." if names[2:] else "") if names else ""
    return f"{number}: {few}" if few else number


def _makers(groups: list[State]) -> set[object]:
    return {group.get("optimizer") for group in groups}


def _geometries(groups: list[State]) -> dict[str, str]:
    """Geometries by name of a parameter; of groups without names none."""
    return {
        name: group["geometry"]
        for group in groups
        if "geometry" in group
        for name in group.get("param_names", ())
    }


def _require_same_meaning(groups: list[State], saved: State, weights: Set[str]) -> None:
    """Refuse a saved state of another meaning; one that holds nothing but weights has none."""
    if not _has_meaning(saved, weights):
        return
    for index, (group, other) in enumerate(zip(groups, saved["param_groups"], strict=False)):
        for key in MEANING:
            if other.get(key) != group.get(key):
                raise CheckpointError(
                    f"group {index} has {key} {group.get(key)!r}, the saved state {other.get(key)!r}: its "
                    "momentum means something else. Build the optimizer as it was when the state was saved, "
                    "or start with a fresh one"
                )
