import io
import itertools
import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from symoptim.paper.data.classes import CLASSES, VOID
from symoptim.paper.segnet.figures import colored, draw_curves, draw_predictions, draw_sensitivity
from symoptim.paper.segnet.images import label_png
from symoptim.paper.segnet.summary import SceneSummary


def test_labels_have_the_colors_of_their_classes_and_void_is_black() -> None:
    labels = torch.arange(VOID + 1, dtype=torch.uint8).reshape(3, 4)
    picture = colored(label_png(labels))
    assert picture.shape == (3, 4, 3)
    for label, color in zip(labels.flatten().tolist(), picture.reshape(-1, 3).tolist(), strict=True):
        assert tuple(color) == (CLASSES[label].color if label < VOID else (0, 0, 0))


def flat(color: tuple[int, int, int]) -> bytes:
    """A picture of a single color."""
    file = io.BytesIO()
    Image.new("RGB", (24, 16), color).save(file, "png")
    return file.getvalue()


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def share(area: np.ndarray, color: tuple[int, int, int]) -> float:
    return float((area == color).all(axis=-1).mean())


def test_columns_are_the_image_the_truth_and_every_update_above_a_legend(
    scene_summary: SceneSummary, tmp_path: Path
) -> None:
    pink, (sky, road, car) = (255, 0, 255), (0, 3, 8)
    truth, un, sgd = (label_png(torch.full((16, 24), k, dtype=torch.uint8)) for k in (road, sky, car))
    examples = [e._replace(image=flat(pink), truth=truth) for e in scene_summary.examples]
    made = {update: {e.name: label for e in examples} for update, label in (("un", un), ("sgd", sgd))}
    drawn = scene_summary._replace(examples=examples, pictures=made)
    picture = pixels(draw_predictions(drawn, tmp_path / "predictions"))
    colors = [pink, *(CLASSES[k].color for k in (road, sky, car))]
    for place, column in enumerate(np.array_split(picture, 4, axis=1)):
        shares = [share(column, color) for color in colors]
        assert shares.pop(place) > 0.6
        assert max(shares) < 0.01
    legend = picture[-len(picture) // 9 :]
    assert all(share(legend, kind.color) > 0 for kind in CLASSES)


def test_every_example_is_a_row_with_its_own_labels(scene_summary: SceneSummary, tmp_path: Path) -> None:
    examples = [
        example._replace(truth=label_png(torch.full((16, 24), k, dtype=torch.uint8)))
        for k, example in enumerate(scene_summary.examples)
    ]
    drawn = draw_predictions(scene_summary._replace(examples=examples), tmp_path / "predictions")
    truths = np.array_split(pixels(drawn), 4, axis=1)[1]
    heights = [np.flatnonzero((truths == CLASSES[k].color).all(axis=-1).mean(axis=1) > 0.5) for k in range(4)]
    assert all(len(rows) > 100 for rows in heights)
    assert all(one.max() < other.min() for one, other in itertools.pairwise(heights))


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


def test_epochs_are_whole_numbers(scene_summary: SceneSummary, tmp_path: Path) -> None:
    _, drawing = draw_curves(scene_summary, tmp_path / "curves")
    _, *axes = drawing.read_text(encoding="utf-8").split('<g id="matplotlib.axis_')
    for horizontal in axes[::2]:  # letters are drawn as lines, and said in comments
        assert re.findall(r"<!-- (.*?) -->", horizontal) == ["1", "2", "epoch"]
