"""Scores on CamVid's test set that others have published, to stand beside ours."""

from typing import NamedTuple


class Published(NamedTuple):
    """A system: what it is, its training set, and global accuracy, class accuracy, mean IoU if given."""

    system: str
    training: str
    global_accuracy: float | None
    class_accuracy: float
    mean_iou: float | None
    source: str


PUBLISHED: tuple[Published, ...] = (
    Published("SegNet-Basic, L-BFGS", "367 images", 0.843, 0.629, None, "arXiv:1505.07293"),
    Published("SegNet-Basic", "367 images", 0.827, 0.620, 0.477, "arXiv:1511.00561, Table 1"),
    Published("SegNet-Basic, no weights", "367 images", 0.840, 0.546, 0.463, "arXiv:1511.00561, Table 1"),
    Published("SegNet-Basic of ChainerCV", "367 images", 0.827, 0.671, 0.472, "chainer/chainercv"),
    Published("ENet", "367 images", None, 0.683, 0.513, "arXiv:1606.02147"),
    Published("ESPNet", "367 images", None, 0.683, 0.556, "arXiv:1803.06815"),
    Published(
        "SegNet",
        "367 images (?), ImageNet weights",
        0.886,
        0.659,
        0.502,
        "an earlier version of arXiv:1511.00561, as others quote it",
    ),
    Published("SegNet", "3433 images, ImageNet weights", 0.904, 0.712, 0.601, "arXiv:1511.00561, Table 3"),
)
"""11 classes, 360 x 480 pixels."""
