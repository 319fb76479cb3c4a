from pathlib import Path

import numpy as np
import torch
from PIL import Image

from symoptim.data.classes import CLASSES, VOID
from symoptim.report.scenes.figures import draw_curves, draw_sensitivity
from symoptim.report.scenes.pictures import colored, draw_predictions
from symoptim.report.scenes.summary import SceneSummary
from symoptim.segmentation.pictures import label_png


def test_labels_have_the_colors_of_their_classes_and_void_is_black() -> None:
    labels = torch.arange(VOID + 1, dtype=torch.uint8).reshape(3, 4)
    picture = colored(label_png(labels))
    assert picture.shape == (3, 4, 3)
    for label, color in zip(labels.flatten().tolist(), picture.reshape(-1, 3).tolist(), strict=True):
        assert tuple(color) == (CLASSES[label].color if label < VOID else (0, 0, 0))


def test_the_picture_shows_the_colors_of_the_truth_and_a_legend(
    scene_summary: SceneSummary, tmp_path: Path
) -> None:
    path = draw_predictions(scene_summary, tmp_path / "predictions")
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    colors = {tuple(color) for color in pixels.tolist()}
    assert {kind.color for kind in CLASSES} <= colors  # the legend has them all


def test_without_a_run_the_picture_is_of_images_and_truth(
    scene_summary: SceneSummary, tmp_path: Path
) -> None:
    empty = [r._replace(runs=(), train=(), validation=(), test=()) for r in scene_summary.results]
    path = draw_predictions(scene_summary._replace(results=empty), tmp_path / "predictions")
    with Image.open(path) as picture:
        assert picture.width < 700


def test_curves_and_sensitivity_are_drawn(scene_summary: SceneSummary, tmp_path: Path) -> None:
    files = draw_curves(scene_summary, tmp_path / "curves")
    files += draw_sensitivity(scene_summary.search, scene_summary.titles, tmp_path / "sensitivity")
    assert [file.name for file in files] == [
        "curves.png",
        "curves.svg",
        "sensitivity.png",
        "sensitivity.svg",
    ]
    assert all(file.stat().st_size > 5_000 for file in files)
