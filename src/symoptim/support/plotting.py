"""Style of figures: one palette, one way to save, text in the colors of the page around it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from symoptim.errors import RecordsError
from symoptim.support.files import require_folder

# Of matplotlib, whose types are incomplete.
Axes = Any
Canvas = Any

# Okabe and Ito's palette, which color-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
DARK_ORANGE = "#A84300"  # for small letters, which need more contrast

# Stands for the color of text; in pages it becomes the color of the text around the figure.
_TEXT = "#010203"


def pyplot() -> Any:
    """Matplotlib without a window, in this style; it is an extra, and slow to import."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    text = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    plt.rcParams.update(dict.fromkeys(text, _TEXT))
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    return plt


def set_log_scale(
    axes: Axes, numbers: tuple[float, ...], form: Callable[[float], str] = "{:g}".format
) -> None:
    """A logarithmic vertical scale with these multiples of powers of ten, as one writes them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    def text(value: float, _position: int) -> str:
        return form(value)

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=numbers))
    axes.yaxis.set_major_formatter(FuncFormatter(text))
    axes.yaxis.set_minor_formatter(NullFormatter())


def save(figure: Canvas, path: Path) -> list[Path]:
    """Save a figure as PNG and SVG, and close it; ``path`` is without ending."""
    # Names within an SVG come from its salt: several of them can stand in one page.
    pyplot().rcParams["svg.hashsalt"] = path.name
    drawing = path.with_suffix(".svg")
    with _writing(figure, path):
        figure.savefig(path.with_suffix(".png"), dpi=150)
        figure.set_layout_engine("none")  # it is laid out, which takes as long as drawing it
        figure.savefig(drawing, metadata={"Date": None}, transparent=True)
    return [path.with_suffix(".png"), drawing]


def save_png(figure: Canvas, path: Path) -> Path:
    """Save a figure of pictures as PNG, and close it; ``path`` is without ending."""
    with _writing(figure, path):
        figure.savefig(path.with_suffix(".png"), dpi=110)
    return path.with_suffix(".png")


@contextmanager
def _writing(figure: Canvas, path: Path) -> Generator[None]:
    """Close the figure in the end, and explain errors of the disk."""
    try:
        require_folder(path.parent)
        yield
    except OSError as error:
        raise RecordsError(f"{path} cannot be written ({error.strerror})") from error
    finally:
        pyplot().close(figure)


def inline_svg(path: Path, label: str) -> str:
    """An SVG file as a piece of HTML: without its header, its text in the color of the text around it."""
    text = path.read_text(encoding="utf-8")
    named = text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return named.replace(_TEXT, "currentColor")
