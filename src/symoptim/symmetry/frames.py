"""Frames of modules: all that a module's ``forward`` sees.

A module sees its own parameters, what it computes itself, and what goes into the modules it calls and comes
out of them. What these compute inside, it does not see.
"""

from symoptim.symmetry.graph import Graph, Ref


def crossings(graph: Graph, exposed: frozenset[str]) -> set[int]:
    """Values that are seen in exposed frames.

    A value goes from the module that makes it up to the one around both, and down to the one that takes it.

    Args:
        graph: of a pass.
        exposed: names of modules; those around an exposed one are exposed too.

    Returns:
        Numbers of the values.
    """
    if not exposed:
        return set()
    made: dict[int, list[str]] = {
        leaf.index: [leaf.name.rpartition(".")[0] if leaf.kind in ("parameter", "buffer") else ""]
        for leaf in graph.leaves
    }
    found: set[int] = set()
    for operation in graph.operations:
        whole = operation.arguments[0] if operation.name == "getitem" else None
        made[operation.index] = made[whole.index] if isinstance(whole, Ref) else [operation.place]
        if isinstance(whole, Ref):
            continue
        for index in operation.references():
            if any(_around_both(place, operation.place) in exposed for place in made[index]):
                found.add(index)
    # A module may return what its caller uses on another path only.
    return found | {ref.index for caller, ref in graph.returned if caller in exposed}


def _around_both(one: str, other: str) -> str:
    """The innermost module around two.

    >>> _around_both("layers.1.mlp.up", "layers.1.norm"), _around_both("up", "down")
    ('layers.1', '')
    """
    shared: list[str] = []
    for mine, theirs in zip(one.split("."), other.split("."), strict=False):
        if mine != theirs:
            break
        shared.append(mine)
    return ".".join(shared)
