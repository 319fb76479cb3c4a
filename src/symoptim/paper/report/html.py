"""What a report is, and pages from templates; every page is one file that needs no network."""

import base64
from pathlib import Path
from typing import Any, NamedTuple

RECORDS = "records.sqlite"
PAGE = "report.html"

Facts = list[tuple[str, str]]
"""Things to know, by name."""


class Report(NamedTuple):
    """What the records of an experiment say, and the files that were written, the page first."""

    name: str
    summary: Any
    paths: list[Path]


class Figure(NamedTuple):
    """A figure of a page; without a drawing its caption says what is missing."""

    id: str
    title: str
    drawing: str
    caption: str


def render_page(template: str, **values: Any) -> str:
    """Fill in a template of this package; values are escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def inline_png(path: Path, label: str) -> str:
    """A picture file as an HTML element with the picture in it; the label is for those who cannot see it."""
    content = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{label}" src="data:image/png;base64,{content}">'


def duration(seconds: float) -> str:
    """A time as one says it.

    >>> duration(89.6), duration(5400.0)
    ('90 s', '1 h 30 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
