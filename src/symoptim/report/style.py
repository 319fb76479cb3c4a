"""How figures look: one palette, one way to save, and ink that follows the page's colors."""

from pathlib import Path
from typing import Any

from symoptim.errors import RecordsError
from symoptim.records.files import require_folder

# Okabe and Ito's palette, which color-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
DARK_ORANGE = "#A84300"  # for small letters, which need more contrast
_COLORS = {"b-sgd": ORANGE, "sm": BLUE, "un": GREEN, "adamw": PURPLE, "invariant-adamw": AMBER}

# A color nobody would choose, put where ink is meant; in pages it becomes the color of the text around it.
_INK = "#010203"


def color_of(update: str) -> str:
    """Color of an update in every figure; updates of one's own share one."""
    return _COLORS.get(update, SKY)


def pyplot() -> Any:
    """Matplotlib without a window, in this style; it is an extra, and slow to import."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    plt.rcParams.update(dict.fromkeys(ink, _INK))
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    return plt


def save(figure: Any, path: Path) -> list[Path]:
    """Save a figure as PNG and SVG, and close it.

    Args:
        figure: of matplotlib.
        path: without its ending.

    Returns:
        Both files.

    Raises:
        RecordsError: one of them cannot be written.
    """
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    try:
        require_folder(path.parent)
        figure.savefig(paths[0], dpi=150)
        # Names within an SVG come from its salt: several of them can stand in one page.
        pyplot().rcParams["svg.hashsalt"] = path.name
        figure.savefig(paths[1], metadata={"Date": None}, transparent=True)
    except OSError as error:
        raise RecordsError(f"{path} cannot be written ({error.strerror})") from error
    finally:
        pyplot().close(figure)
    return paths


def inline_svg(path: Path, label: str) -> str:
    """An SVG file as a piece of HTML: without its header, its ink in the color of the text around it.

    Args:
        path: the file.
        label: what the drawing shows, for those who cannot see it.

    Returns:
        The SVG element.
    """
    text = path.read_text(encoding="utf-8")
    named = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return named.replace(_INK, "currentColor")
