"""The groups that tools for quantizing language models ask people to write by hand.

AWQ and SmoothQuant move scales from activations into weights: they divide the channels of one layer and
multiply the inputs of the layers behind it. Which layers these are is written down for every architecture, in
tables. A generator that multiplies one module and divides inputs of others says just that:

    norm -> the linear maps that read it        v -> o        up -> down
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from symoptim.symmetry.describe import KindOfUnit, kinds
from symoptim.symmetry.spec import SymmetrySpec


class Mapping(NamedTuple):
    """A module whose outputs can be divided by what inputs of others are multiplied by."""

    smooth_layer: str
    balance_layers: tuple[str, ...]
    channels: int


def mappings(spec: SymmetrySpec) -> list[Mapping]:
    """All such groups of a model, in its order."""
    found: dict[tuple[str, tuple[str, ...]], int] = {}
    for kind in kinds(spec):
        sides = _sides(kind)
        if sides is not None:
            found[sides] = found.get(sides, 0) + kind.number
    return [Mapping(smooth, balance, channels) for (smooth, balance), channels in found.items()]


def _sides(kind: KindOfUnit) -> tuple[str, tuple[str, ...]] | None:
    """The module that is multiplied and those that are divided, if it is that simple."""
    if any(abs(one.exponent) != 1 for one in kind.slices):
        return None
    multiplied = _modules(one.tensor for one in kind.slices if one.exponent > 0)
    divided = _modules(one.tensor for one in kind.slices if one.exponent < 0)
    inputs_alone = all(len(one.shape) > 1 for one in kind.slices if one.exponent < 0)
    if len(multiplied) != 1 or not divided or not inputs_alone or multiplied[0] in divided:
        return None
    if _outputs_meet(kind):
        return None
    return multiplied[0], divided


def _outputs_meet(kind: KindOfUnit) -> bool:
    """Whether both sides are rows of matrices, as those of queries and keys are: no inputs are involved."""
    matrices = {(one.exponent, one.axis) for one in kind.slices if len(one.shape) == 2}
    return {(1.0, 0), (-1.0, 0)} <= matrices


def _modules(tensors: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tensor.rpartition(".")[0] for tensor in tensors))


def as_yaml(found: Iterable[Mapping]) -> str:
    r"""Mappings as a recipe has them: layers of a stack are one regular expression.

    >>> layers = [Mapping(f"layers.{k}.norm", (f"layers.{k}.up",), 8) for k in range(2)]
    >>> print(as_yaml([*layers, Mapping("norm", ("head",), 8)]))
    mappings:
      - smooth_layer: 're:^layers\.\d+\.norm$'  # 2 times 8 channels
        balance_layers: ['re:^layers\.\d+\.up$']
      - smooth_layer: 'norm'  # 8 channels
        balance_layers: ['head']
    """
    alike: dict[tuple[str, ...], list[Mapping]] = {}
    for one in found:
        names = (one.smooth_layer, *one.balance_layers)
        alike.setdefault(tuple(map(_pattern, names)) if _in_one_layer(names) else names, []).append(one)
    lines = ["mappings:"]
    for patterns, same in alike.items():
        smooth, *balance = patterns if len(same) > 1 else (same[0].smooth_layer, *same[0].balance_layers)
        times = f"{len(same)} times " if len(same) > 1 else ""
        channels = " or ".join(str(number) for number in dict.fromkeys(one.channels for one in same))
        lines.append(f"  - smooth_layer: '{smooth}'  # {times}{channels} channels")
        lines.append("    balance_layers: [" + ", ".join(f"'{one}'" for one in balance) + "]")
    return "\n".join(lines)


def _in_one_layer(names: tuple[str, ...]) -> bool:
    """Whether the names have the same numbers of layers: a pattern would else also match other pairs."""
    return len({tuple(part for part in name.split(".") if part.isdigit()) for name in names}) == 1


def _pattern(name: str) -> str:
    parts = (r"\d+" if part.isdigit() else re.escape(part) for part in name.split("."))
    return "re:^" + r"\.".join(parts) + "$"
