"""Frames of modules: all that a module's ``forward`` sees.

A module sees its own parameters, what it computes itself, what it is given, and what goes into the modules it
calls and comes out of them. What these compute inside, it does not see.
"""

from collections.abc import Collection, Iterator

from symoptim.symmetry.graph import Graph, Ref


def crossings(graph: Graph, exposed: Collection[str], called: Collection[str]) -> set[int]:
    """Values that are seen in exposed frames.

    A value goes from the module that makes it up to the one around both, and down to the one that takes it.

    Args:
        graph: of a pass.
        exposed: names of modules.
        called: names of those that are called: others only hold modules or parameters for these.

    Returns:
        Numbers of the values.
    """
    if not exposed:
        return set()
    made: dict[int, str | None] = {
        leaf.index: _owner(leaf.name, called) if leaf.kind in ("parameter", "buffer") else ""
        for leaf in graph.leaves
    }
    found: set[int] = set()
    ways: dict[tuple[str, str], bool] = {}
    for operation in graph.operations:
        whole = operation.arguments[0] if operation.name == "getitem" else None
        made[operation.index] = made[whole.index] if isinstance(whole, Ref) else operation.place
        if isinstance(whole, Ref):
            continue
        for index in operation.references():
            maker = made.get(index, "")  # "" for what export has beside tensors: parts of torch.cond
            way = operation.place if maker is None else maker, operation.place
            if way not in ways:
                ways[way] = not set(_between(*way, called)).isdisjoint(exposed)
            found |= {index} if ways[way] else set()
    # A module may return what its caller uses on another path only, or be given what it does not use now.
    return found | {ref.index for place, ref in graph.seen if place in exposed}


def _owner(name: str, called: Collection[str]) -> str | None:
    """The module of a parameter; None if it is never called, or not by this name: its user sees it alone."""
    owner = name.rpartition(".")[0]
    return owner if owner in called else None


def around(place: str, called: Collection[str]) -> str:
    """The innermost module that is called, of one and those around it.

    >>> around("layers.1", {"", "layers.1.up"})
    ''
    """
    return next((one for one in (place, *_outside(place)) if one in called), "")


def _between(maker: str, taker: str, called: Collection[str]) -> Iterator[str]:
    """Modules in whose frames a value is on its way.

    >>> list(_between("layers.1.up", "layers.1.norm", {"", "layers.1", "layers.1.up", "layers.1.norm"}))
    ['layers.1.up', 'layers.1.norm', 'layers.1']
    >>> list(_between("0.down", "1.up", {"", "0", "1"}))
    ['0.down', '0', '1.up', '1', '']
    """
    shared = [one for one in (maker, *_outside(maker)) if one in (taker, *_outside(taker))]
    meet = around(shared[0], called)
    for start in dict.fromkeys((maker, taker)):
        yield from (one for one in (start, *_outside(start)) if len(one) > len(meet))
    yield meet


def _outside(place: str) -> Iterator[str]:
    """Modules around one by its name, the innermost first.

    >>> list(_outside("layers.1.up"))
    ['layers.1', 'layers', '']
    """
    while place:
        place = place.rpartition(".")[0]
        yield place
