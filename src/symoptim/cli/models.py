"""Models and inputs that are named on the command line, for every command that takes one."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from symoptim.errors import OptionError, with_article


class Call(NamedTuple):
    """A model and the arguments it is called with."""

    model: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def require_running(self) -> None:
        """Call the model, and raise an OptionError if it fails."""
        try:
            self.model(*self.arguments, **self.keywords)
        except Exception as error:
            inputs = (*self.arguments, *self.keywords.values())
            shapes = ", ".join(str(tuple(getattr(one, "shape", ()))) for one in inputs)
            raise OptionError(
                f"the model does not run on inputs of shape {shapes}: {type(error).__name__}: {error}"
            ) from error


def load_model(factory: str, inputs: Sequence[str]) -> Call:
    """Make a model, and inputs for it.

    Args:
        factory: ``MODULE:FACTORY``, or ``FILE.py:FACTORY``; what makes the model, or the model itself.
        inputs: shapes as they were typed; without any the factory has to return inputs too.

    Returns:
        The model and its arguments.

    Raises:
        OptionError: it names nothing, needs arguments, fails, makes no model, or there are no inputs.
    """
    found = _find(factory)
    made: Any = found if isinstance(found, nn.Module) else _made(found, factory)
    has_inputs = isinstance(made, tuple) and len(cast("tuple[Any, ...]", made)) == 2
    model, given = cast("tuple[Any, Any]", made if has_inputs else (made, ()))
    if not isinstance(model, nn.Module):
        kind = with_article(type(model).__name__)
        raise OptionError(f"{factory} returns {kind}; it should make an nn.Module")
    if inputs:
        return Call(model, tuple(map(parse_input, inputs)), {})
    if isinstance(given, Mapping):  # what tokenizers return is no dict
        return Call(model, (), dict(cast("Mapping[str, Any]", given)))
    arguments = tuple(cast("Sequence[Any]", given)) if isinstance(given, tuple | list) else (given,)
    if not arguments:
        raise OptionError(
            f"there is no input for {factory}: give --input SHAPE, such as --input 2,3,224,224, or let it "
            "return the model and its inputs, a tuple or a dictionary by name"
        )
    return Call(model, arguments, {})


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
    try:
        if tokens is None:
            return torch.rand(shape, generator=generator)
        return torch.randint(tokens, shape, generator=generator)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise OptionError(f"input '{typed}' cannot be made, it is too large: {_first_line(error)}") from error


def _find(factory: str) -> Callable[[], Any]:
    where, _, name = factory.rpartition(":")
    if not where or not name:
        raise OptionError(f"'{factory}' should be MODULE:FACTORY, such as torchvision.models:resnet50")
    try:
        found: Any = _module(where)
    except OptionError:
        raise
    except (Exception, SystemExit) as error:
        raise OptionError(f"{where} cannot be imported: {_described(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise OptionError(f"there is no '{name}' in {where}")
        found = getattr(found, part)
    if not callable(found):
        kind = with_article(type(found).__name__)
        raise OptionError(f"{factory} is {kind}; it should be a model, or a function that makes one")
    return found


def _made(make: Callable[[], Any], factory: str) -> object:
    """What a function without arguments returns."""
    if needed := ", ".join(_required_arguments(make)):
        raise OptionError(
            f"{factory} needs arguments ({needed}), and is called without any: write a function that gives "
            f"them, such as def make(): return {factory.rpartition(':')[2]}(...), and name that"
        )
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise OptionError(f"{factory}() fails: {_described(error)}") from error


def _required_arguments(make: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (ValueError, TypeError):  # some of those written in C have none
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in optional]


def _described(error: BaseException) -> str:
    """An error of the user's own code: what it is, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {_first_line(error)} (line {last.lineno} of {last.filename})"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


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
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise  # it is there, and what it imports is not
        raise OptionError(f"there is no module {where}: {error}") from error
