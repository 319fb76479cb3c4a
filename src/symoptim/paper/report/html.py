"""Pages from templates; every page is one file that needs no network."""

import base64
from pathlib import Path
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A figure of a page; without a drawing its caption says what is missing."""

    id: str
    title: str
    drawing: str
    caption: str


def render_page(template: str, **values: Any) -> str:
    """Fill a template of this folder in; values are escaped.

    Args:
        template: name of the template.
        **values: what it asks for.

    Returns:
        The page.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def inline_png(path: Path, label: str) -> str:
    """A picture file as a piece of HTML.

    Args:
        path: the file.
        label: what the picture shows, for those who cannot see it.

    Returns:
        The image element, with the picture in it.
    """
    content = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{label}" src="data:image/png;base64,{content}">'
