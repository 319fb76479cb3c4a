"""Models and inputs that are named on the command line."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.errors import OptionError


class Call(NamedTuple):
    """A model and the arguments it is called with."""

    model: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


def load_model(factory: str, inputs: Sequence[str]) -> Call:
    """Make a model, and inputs for it.

    Args:
        factory: ``MODULE:FACTORY``, or ``FILE.py:FACTORY``.
        inputs: shapes as they were typed; without any the factory has to return inputs too.

    Returns:
        The model and its arguments.

    Raises:
        OptionError: it names nothing, makes no model, or there are no inputs.
    """
    made: Any = _find(factory)()
    given: Any = ()
    if isinstance(made, tuple) and len(cast("tuple[Any, ...]", made)) == 2:
        made, given = cast("tuple[Any, Any]", made)
    if not isinstance(made, nn.Module):
        kind = type(cast("object", made)).__name__
        raise OptionError(f"{factory} returns a {kind}; it should make an nn.Module")
    if inputs:
        return Call(made, tuple(map(parse_input, inputs)), {})
    if isinstance(given, dict):
        return Call(made, (), cast("dict[str, Any]", given))
    arguments = tuple(cast("Sequence[Any]", given)) if isinstance(given, tuple | list) else (given,)
    if not arguments:
        raise OptionError(
            f"there is no input for {factory}: give --input SHAPE, such as --input 2,3,224,224, or let it "
            "return the model and its inputs, a tuple or a dictionary by name"
        )
    return Call(made, arguments, {})


def parse_input(typed: str) -> Tensor:
    """An input as it is typed: a shape, or a shape and the number of different tokens.

    >>> parse_input("2,3").shape, parse_input("2,16:10").dtype
    (torch.Size([2, 3]), torch.int64)
    >>> parse_input("2x3")
    Traceback (most recent call last):
    symoptim.errors.OptionError: input '2x3' is no shape: write sizes with commas, 2,3,224,224, or ...
    """
    sizes, _, below = typed.partition(":")
    try:
        shape = [int(size) for size in sizes.split(",")]
        tokens = int(below) if below else None
    except ValueError:
        shape, tokens = [0], None
    if min(shape) < 1 or (tokens is not None and tokens < 1):
        raise OptionError(
            f"input '{typed}' is no shape: write sizes with commas, 2,3,224,224, or tokens, 2,16:50257"
        )
    generator = torch.Generator().manual_seed(0)
    if tokens is None:
        return torch.rand(shape, generator=generator)
    return torch.randint(tokens, shape, generator=generator)


def _find(factory: str) -> Callable[[], Any]:
    where, colon, name = factory.rpartition(":")
    if not colon or not where or not name:
        raise OptionError(f"'{factory}' should be MODULE:FACTORY, such as torchvision.models:resnet50")
    module = _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise OptionError(f"there is no '{name}' in {where}")
        found = getattr(found, part)
    if not callable(found):
        raise OptionError(
            f"{factory} is a {type(found).__name__}; it should be a function that makes a model"
        )
    return found


def _module(where: str) -> ModuleType:
    sys.path[:0] = [str(Path.cwd())]  # as python -m has it
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise OptionError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        raise OptionError(f"there is no module {where}: {error}") from error
