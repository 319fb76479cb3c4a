"""Scenes and segmentations as picture files, small enough to be kept in the records."""

import io
from typing import Any

from torch import Tensor


def jpeg(image: Tensor) -> bytes:
    """An image ``(3, h, w)``, unsigned bytes, for looking at: not every bit of it is kept."""
    return _encoded(image.permute(1, 2, 0), "JPEG", quality=90)


def label_png(labels: Tensor) -> bytes:
    """Labels ``(h, w)``, unsigned bytes, as a gray picture that has every one of them."""
    return _encoded(labels, "PNG", optimize=True)


def _encoded(pixels: Tensor, kind: str, **options: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.cpu().contiguous().numpy()).save(buffer, kind, **options)
    return buffer.getvalue()
