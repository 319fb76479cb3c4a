"""Which optional packages the commands need, and which extra of this package installs them."""

EXTRAS: dict[str, dict[str, str]] = {
    "cli": {"typer": "typer", "rich": "rich"},
    "fast": {"numba": "numba"},
    "paper": {
        "numpy": "numpy",
        "matplotlib": "matplotlib",
        "jinja2": "jinja2",
        "pooch": "pooch",
        "sklearn": "scikit-learn",
        "scipy": "scipy",
        "PIL": "pillow",
    },
}
"""By extra: modules, and the packages they are in."""


def installation(*extras: str) -> str:
    """The command that installs extras.

    >>> installation("cli", "fast")
    "in a clone, pip install '.[cli,fast]'"
    """
    return f"in a clone, pip install '.[{','.join(extras)}]'"


def extra_of(module: str | None) -> str | None:
    """The extra that installs a module, or a module within it; None if none does.

    >>> extra_of("rich.console"), extra_of("torchvision")
    ('cli', None)
    """
    root = (module or "").partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if root in modules), None)
