"""Names of modules and tensors with numbers in them, and patterns that stand for exactly some of them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence


def is_number(part: str) -> bool:
    """Whether a part of a name is a number, as those of layers of a stack are."""
    return part.isascii() and part.isdigit() and str(int(part)) == part


def numbers_in(name: str) -> tuple[int, ...]:
    """The numbers that are parts of a name.

    >>> numbers_in("stages.1.blocks.0.conv2.weight")
    (1, 0)
    """
    return tuple(int(part) for part in name.split(".") if is_number(part))


def starred(name: str) -> str:
    """A name with ``*`` for every number.

    >>> starred("stages.1.blocks.0.conv2.weight")
    'stages.*.blocks.*.conv2.weight'
    """
    return ".".join("*" if is_number(part) else part for part in name.split("."))


def filled(pattern: str, parts: Iterable[str]) -> str:
    """A starred name with these parts for its stars.

    >>> filled("stages.*.blocks.*.conv2.weight", ["1", "{0,1}"])
    'stages.1.blocks.{0,1}.conv2.weight'
    """
    left = iter(parts)
    return ".".join(next(left) if part == "*" else part for part in pattern.split("."))


def products(tuples: Collection[tuple[int, ...]]) -> list[tuple[list[int], ...]]:
    """Products of sets that have exactly these tuples, each in one of them.

    >>> products({(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)})
    [([0, 1], [1, 2]), ([2], [1])]
    """
    if tuples == {()}:
        return [()]
    rests: dict[int, set[tuple[int, ...]]] = {}
    for first, *rest in sorted(tuples):
        rests.setdefault(first, set()).add(tuple(rest))
    firsts: dict[frozenset[tuple[int, ...]], list[int]] = {}
    for first, rest in rests.items():
        firsts.setdefault(frozenset(rest), []).append(first)
    return [(numbers, *others) for rest, numbers in firsts.items() for others in products(rest)]


def as_set(numbers: Sequence[int]) -> str:
    """Numbers in order, as a part of a name.

    >>> as_set([3]), as_set([0, 1]), as_set([0, 1, 2, 5])
    ('3', '{0,1}', '{0..2,5}')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs]
    return words[0] if len(numbers) == 1 else "{" + ",".join(words) + "}"


def patterns_of(names: Iterable[str]) -> list[str]:
    """Patterns that stand for exactly these names.

    >>> patterns_of(["experts.0.up", "experts.1.up", "experts.2.up", "experts.2.down"])
    ['experts.{0..2}.up', 'experts.2.down']
    """
    numbers: dict[str, set[tuple[int, ...]]] = {}
    for name in names:
        numbers.setdefault(starred(name), set()).add(numbers_in(name))
    found = ((pattern, choices) for pattern, same in numbers.items() for choices in products(same))
    return [filled(pattern, map(as_set, choices)) for pattern, choices in found]


def is_set(part: str) -> bool:
    """Whether a part of a name stands for several numbers."""
    return part == "*" or part.startswith("{")


def parts_of(name: str) -> list[str]:
    """Parts of a name or pattern, without words behind it.

    >>> parts_of("layers.{0..2}.norm rms_norm")
    ['layers', '{0..2}', 'norm']
    """
    return re.split(r"(?<!\.)\.(?!\.)", name.partition(" ")[0])


def part_of(name: str, place: int) -> str:
    """One of the parts; nothing if there are fewer."""
    parts = parts_of(name)
    return parts[place] if place < len(parts) else ""


def replaced(name: str, place: int, old: str, new: str) -> str:
    """A name with another part at a place, if that is the old one.

    >>> replaced("layers.0.norm rms_norm", 1, "0", "{0,1}"), replaced("layers.2.norm", 1, "0", "{0,1}")
    ('layers.{0,1}.norm rms_norm', 'layers.2.norm')
    """
    if part_of(name, place) != old:
        return name
    parts, (_, space, words) = parts_of(name), name.partition(" ")
    return ".".join([*parts[:place], new, *parts[place + 1 :]]) + space + words


NamesByPattern = Mapping[str, Sequence[str]]


def by_pattern(names: Iterable[str]) -> NamesByPattern:
    """Names by what they are with ``*`` for every number."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(starred(name), []).append(name)
    return found


def fitting(pattern: str, names: NamesByPattern) -> list[str]:
    """The names that a pattern stands for.

    >>> fitting("layers.{0,2}.up", by_pattern(["layers.0.up", "layers.1.up", "layers.2.up", "up"]))
    ['layers.0.up', 'layers.2.up']
    """
    parts = parts_of(pattern)
    key = ".".join("*" if is_number(part) or is_set(part) else part for part in parts)
    return [name for name in names.get(key, ()) if all(map(_fits, name.split("."), parts))]


def _fits(part: str, pattern: str) -> bool:
    if not is_set(pattern) or pattern == "*":
        return pattern in ("*", part)
    runs = (run.partition("..") for run in pattern.strip("{}").split(","))
    return any(int(first) <= int(part) <= int(last or first) for first, _, last in runs)
