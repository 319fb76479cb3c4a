from pathlib import Path

import pytest

from symoptim.applications.drift import draw_drift

RUNS = {
    "rate 0.1": ([0, 10, 20], [0.0, 1e-4, 2e-4], [0.0, 1e-3, 3e-3]),
    "rate 0.01": ([0, 10, 20], [0.0, 1e-5, 2e-5], [0.0, 1e-4, 3e-4]),
}


def test_the_picture_names_every_run_and_is_not_a_blank_sheet(tmp_path: Path) -> None:
    pixels = pytest.importorskip("matplotlib.image")
    image, drawing = draw_drift(RUNS, tmp_path / "drift")
    assert pixels.imread(image).std() > 0.05
    assert all(name in drawing.read_text() for name in RUNS)
