"""What the paper printed: Table 2 of arXiv:1511.01754, test error on MNIST, mean and standard deviation."""

from typing import NamedTuple


class Key(NamedTuple):
    """A cell of Table 2."""

    depth: int
    schedule: str
    architecture: str
    update: str


class Printed(NamedTuple):
    """Mean and standard deviation of the test error over ten runs."""

    mean: float
    deviation: float


_COLUMNS = [(architecture, update) for architecture in ("arch1", "arch2") for update in ("b-sgd", "sm", "un")]
_ROWS: dict[tuple[int, str], str] = {
    (2, "exponential"): ".0263 .0079  .0283 .0062  .0220 .0057  .0216 .0038  .0228 .0051  .0230 .0036",
    (2, "bold"): ".0240 .0026  .0271 .0076  .0228 .0038  .0206 .0024  .0186 .0024  .0199 .0046",
    (4, "exponential"): ".0277 .0045  .0256 .0038  .0215 .0049  .0218 .0028  .0204 .0050  .0224 .0065",
    (4, "bold"): ".0253 .0060  .0264 .0056  .0244 .0101  .0204 .0027  .0188 .0033  .0179 .0025",
}


def _parse() -> dict[Key, Printed]:
    table: dict[Key, Printed] = {}
    for (depth, schedule), line in _ROWS.items():
        numbers = [float(number) for number in line.split()]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        for (architecture, update), (mean, deviation) in zip(_COLUMNS, pairs, strict=True):
            table[Key(depth, schedule, architecture, update)] = Printed(mean, deviation)
    return table


TABLE2: dict[Key, Printed] = _parse()
"""All 24 cells."""
