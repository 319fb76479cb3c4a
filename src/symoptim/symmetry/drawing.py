"""A picture of a network with its rescalings: a line for every kind of unit, through all it moves.

Tensors stand in the order they are used. A full dot is multiplied by the scale, an open one divided by it;
other powers are written beside the dot. The number at a line's beginning counts the units of that kind.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from symoptim.symmetry.describe import KindOfUnit, kinds, remarks
from symoptim.symmetry.spec import SymmetrySpec

ROW, TRACK, LEFT, TOP = 20, 38, 24, 68
LETTER = 6.7  # mean width of a letter
HOW_TO_READ = "number: units of a kind; full dot: times their scale; open dot: divided by it"
COLORS = ("#4477aa", "#ee6677", "#228833", "#b8860b", "#aa3377", "#0e8f8f", "#555555")


class Line(NamedTuple):
    """A kind of unit on its track, with its dots by row."""

    kind: KindOfUnit
    track: int
    dots: dict[int, list[float]]


def draw(spec: SymmetrySpec) -> str:
    """An SVG file of a group.

    Args:
        spec: the group.

    Returns:
        Its text; hovering over a line shows what moves.
    """
    rows = {name: number for number, name in enumerate(spec.tensors)}
    lines = _placed(kinds(spec), rows)
    shapes = [" x ".join(map(str, moved.shape)) or "scalar" for moved in spec.tensors.values()]
    shapes_at = LEFT + LETTER * max(map(len, spec.tensors), default=0) + 14
    middle = shapes_at + LETTER * max(map(len, shapes), default=0) + 40
    words = remarks(spec)
    tracks = 1 + max((line.track for line in lines), default=0)
    said = [HOW_TO_READ, *words]
    width = max(middle + tracks * TRACK + 40, LEFT + LETTER * 1.05 * max(map(len, said)) + 20)
    height = TOP + ROW * (len(rows) + len(words) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 24, f"{len(spec)} rescalings", 'font-size="16" font-weight="bold"'),
        _text(LEFT, 44, HOW_TO_READ, 'fill="#666666"'),
        *_names(list(spec.tensors), shapes, shapes_at),
        *(part for line in lines for part in _drawn(line, middle)),
        *(_text(LEFT, TOP + ROW * (len(rows) + 1 + k), one, 'fill="#666666"') for k, one in enumerate(words)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _placed(found: list[KindOfUnit], rows: dict[str, int]) -> list[Line]:
    """Every kind on the first track that is free where it runs."""
    ends: list[int] = []
    lines: list[Line] = []
    for kind in found:
        dots: dict[int, list[float]] = {}
        for one in kind.slices:
            dots.setdefault(rows[one.tensor], []).append(one.exponent)
        first, last = min(dots), max(dots)
        track = next((number for number, end in enumerate(ends) if end < first), len(ends))
        ends[track : track + 1] = [last]
        lines.append(Line(kind, track, dots))
    return lines


def _names(names: Sequence[str], shapes: Sequence[str], shapes_at: float) -> Iterator[str]:
    for row, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        height = TOP + ROW * row
        if row % 2 == 0:
            yield f'<rect x="0" y="{height - ROW / 2:.1f}" width="100%" height="{ROW}" fill="#f5f5f5"/>'
        yield _text(LEFT, height + 4, name, "")
        yield _text(shapes_at, height + 4, shape, 'fill="#777777"')
    if len(names) > 1:  # the way from input to output
        end = TOP + ROW * (len(names) - 1)
        yield f'<path d="M12 {TOP} V{end} m-4 -6 l4 6 l4 -6" fill="none" stroke="#999999"/>'


def _drawn(line: Line, middle: float) -> Iterator[str]:
    x, color = middle + TRACK * line.track, COLORS[line.track % len(COLORS)]
    first, last = min(line.dots), max(line.dots)
    moved = "\n".join(map(str, line.kind.slices))
    yield f"<g><title>{escape(f'{line.kind.number} x {line.kind.place}')}\n{escape(moved)}</title>"
    yield (
        f'<path d="M{x:.1f} {TOP + ROW * first} V{TOP + ROW * last}" stroke="{color}" stroke-width="3" '
        'fill="none"/>'
    )
    for row, exponents in line.dots.items():
        y = TOP + ROW * row
        fill = color if exponents[0] > 0 else "white"
        yield f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{fill}" stroke="{color}" stroke-width="2"/>'
        powers = [f"{one:g}" for one in exponents if abs(one) != 1]
        if powers:
            yield _text(x + 7, y + 4, ", ".join(powers), f'fill="{color}" font-size="9"')
    number = f'fill="{color}" font-size="10" text-anchor="end"'
    yield _text(x - 7, TOP + ROW * first + 3, str(line.kind.number), number)
    yield "</g>"


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
