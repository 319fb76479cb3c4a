from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.invariance.pairs import Pair
from symoptim.paper.invariance.report import draw_pairs

PAIRS = [
    Pair("arch1", "b-sgd", (2.0, 1.0), (2.0, 1.5)),
    Pair("arch2", "b-sgd", (2.0, 1.0), (2.0, 0.5)),
    Pair("arch2", "sm", (2.0, 1.0), (2.0, 1.0)),
]


def test_the_picture_is_not_a_blank_sheet(tmp_path: Path) -> None:
    pixels = pytest.importorskip("matplotlib.image")
    path = tmp_path / "new" / "picture"
    image, drawing = draw_pairs(PAIRS, path, caption="words")
    assert pixels.imread(image).std() > 0.05
    assert "the same weights, rescaled" in drawing.read_text()


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordsError, match="file is no folder"):
        draw_pairs(PAIRS, tmp_path / "file" / "picture", caption="words")
