"""The picture of a group: well-formed, with a dot for everything that moves."""

from xml.etree import ElementTree

import pytest

from symoptim.symmetry.describe import kinds
from symoptim.symmetry.drawing import ROW, TOP, draw
from symoptim.symmetry.spec import SymmetrySpec
from tests.support.zoo import group_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["arch1", "resnet evaluation", "gpt, layer norm, gelu", "lstm"])
def test_every_tensor_has_a_row_and_every_move_a_dot(name: str) -> None:
    spec = group_of(name)
    picture = ElementTree.fromstring(draw(spec))
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert words[0] == f"{len(spec)} rescalings"
    assert set(spec.tensors) <= set(words)
    lines = list(picture.iter(f"{SVG}g"))
    assert len(lines) == len(kinds(spec))
    for line, kind in zip(lines, kinds(spec), strict=True):
        moved = {one.tensor for one in kind.slices}
        rows = [(int(dot.attrib["cy"]) - TOP) // ROW for dot in line.iter(f"{SVG}circle")]
        assert {list(spec.tensors)[row] for row in rows} == moved
        assert line.find(f"{SVG}title").text.startswith(f"{kind.number} x {kind.place}")


@pytest.mark.parametrize("name", ["arch1", "gpt, layer norm, gelu"])
def test_dots_of_what_is_multiplied_are_full_and_of_what_is_divided_open(name: str) -> None:
    spec = group_of(name)
    lines = ElementTree.fromstring(draw(spec)).iter(f"{SVG}g")
    for line, kind in zip(lines, kinds(spec), strict=True):
        signs: dict[str, bool] = {}
        for one in kind.slices:
            signs.setdefault(one.tensor, one.exponent > 0)
        for dot in line.iter(f"{SVG}circle"):
            tensor = list(spec.tensors)[(int(dot.attrib["cy"]) - TOP) // ROW]
            assert (dot.attrib["fill"] != "white") == signs[tensor]


def test_lines_on_one_track_do_not_overlap() -> None:
    picture = ElementTree.fromstring(draw(group_of("resnet evaluation")))
    taken: set[tuple[str, int]] = set()
    for line in picture.iter(f"{SVG}g"):
        heights = [int(dot.attrib["cy"]) for dot in line.iter(f"{SVG}circle")]
        track = line.find(f"{SVG}circle").attrib["cx"]
        covered = {(track, height) for height in range(min(heights), max(heights) + 1, ROW)}
        assert not covered & taken
        taken |= covered


def test_names_cannot_break_the_file() -> None:
    spec = group_of("mlp")
    odd = SymmetrySpec.from_json(spec.to_json().replace("0.weight", "a<b>&c.weight"))
    assert "a&lt;b&gt;&amp;c.weight" in draw(odd)
    ElementTree.fromstring(draw(odd))
