"""What keeps a model from being watched, in words: the cause and the way out."""

import dis
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from symoptim.errors import TraceError
from symoptim.geometry.tensors import is_distributed
from symoptim.symmetry.copies import copied
from symoptim.symmetry.environment import seeds_restored
from symoptim.symmetry.limits import is_out_of_memory
from symoptim.symmetry.tensors import model_tensors


class FailingModelError(TraceError):
    """The model itself fails on the inputs, watched or not."""


class Refusal(Enum):
    """Why a model does not take inputs that were made for a trial."""

    RAISED = "its own code raises an error"
    FAILED = "an operation fails, which may take other inputs"
    TOO_LARGE = "it takes too much memory"
    NONE_SUCH = "there are no inputs of this size"


def refusal_of(error: Exception) -> Refusal:
    """Why a trial failed; what the frames of the error hold, such as copies of weights, is let go of."""
    errors = list(_chain(error))
    found = Refusal.RAISED if any(map(_is_raised_by_model, errors)) else Refusal.FAILED
    found = Refusal.TOO_LARGE if any(map(is_out_of_memory, errors)) else found
    for one in errors:
        traceback.clear_frames(one.__traceback__)
    return found


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that led to it."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


LIBRARIES = tuple(str(Path(str(file)).parent) for file in (torch.__file__, Path(__file__).parent))
"""Where the code of torch and ours is."""


def _is_raised_by_model(error: BaseException) -> bool:
    """Whether a ``raise`` or an ``assert`` of neither torch's code nor ours has made an error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    code = last.tb_frame.f_code
    is_raise = dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    return is_raise and not code.co_filename.startswith(LIBRARIES)


def require_plain(model: nn.Module) -> None:
    """Refuse a model whose tensors are not where and what they seem.

    Args:
        model: the network.

    Raises:
        TraceError: they are spread over processes, or something else than a dictionary keeps them.
    """
    for name, module in cast("Iterable[tuple[str, nn.Module]]", model.named_modules()):
        if isinstance(module, torch.jit.ScriptModule):
            raise TraceError(f"'{name}' is compiled by TorchScript: give the module it was made of instead")
        kept = cast("type[Any]", type(vars(module)["_parameters"]))
        if not issubclass(kept, dict):
            raise TraceError(
                f"the parameters of '{name}' are kept in a {kept.__name__}, not in a dictionary, and may be "
                "other tensors each time: discover before they are offloaded or compressed"
            )
        if type(module).__name__ == "FullyShardedDataParallel":
            raise TraceError(f"'{name}' is sharded (FullyShardedDataParallel): discover before it is")
    for name, tensor in model_tensors(model).items():
        if is_lazy(tensor):
            raise TraceError(
                f"'{name}' has no shape yet (a lazy module): run the model once first, on these inputs"
            )
        if is_distributed(tensor):
            raise TraceError(
                f"'{name}' is spread over processes (a DTensor): discover before the model is sharded"
            )


def require_running(model: nn.Module, inputs: tuple[object, ...], keywords: Mapping[str, object]) -> None:
    """Call a model once, unwatched; it is left as it is.

    Args:
        model: the network.
        inputs: positional arguments.
        keywords: other arguments.

    Raises:
        FailingModelError: for the reason that is its cause.
    """
    # Some models need gradients of their parameters, others run without alone.
    if _failure(model, inputs, keywords, gradients=False) is None:
        return
    error = _failure(model, inputs, keywords, gradients=True)
    try:
        if error is not None:
            said = f"the model fails on these inputs: {described(error)}{by_name(inputs)}"
            raise FailingModelError(said) from error
    finally:
        del error  # its frames hold a copy of the model, and this one would hold it in a cycle


def by_name(inputs: tuple[object, ...]) -> str:
    """The way out if a model fails whose only argument is a dictionary.

    >>> by_name((1,)), by_name(({"x": 1},))
    ('', '; arguments by name go into keywords=dict(inputs), and () stands for the positional ones')
    """
    if len(inputs) != 1 or not isinstance(inputs[0], Mapping):
        return ""
    return "; arguments by name go into keywords=dict(inputs), and () stands for the positional ones"


def _failure(
    model: nn.Module, inputs: tuple[object, ...], keywords: Mapping[str, object], *, gradients: bool
) -> Exception | None:
    """The error that a call of a copy ends with, if it does."""
    mine, named = tree_map(_copy, (inputs, dict(keywords)))
    with seeds_restored():
        try:
            other = copied(model, wide=False)
            for parameter in () if gradients else other.parameters():
                parameter.requires_grad_(False)
            other(*mine, **named)
        except Exception as error:  # the caller raises it again, with what there is to say
            return error
    return None


def _copy(value: object) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def unwatched(error: Exception) -> TraceError:
    """What to say of a model that runs, but fails while it is watched.

    Args:
        error: the failure.

    Returns:
        An error that names the cause and the way out.
    """
    found = re.search(r"HigherOrderOperator (\w+)", str(error))
    if found is not None:
        return TraceError(
            f"the model uses {found[1]}, whose operations cannot be watched: choose an implementation by "
            "torch's own operations, such as scaled_dot_product_attention"
        )
    return TraceError(
        f"the model runs, but fails while its operations are watched: {described(error)}: write that part "
        "with torch's own operations, or discover the part of the model around it"
    )


def described(error: Exception) -> str:
    r"""An error as Python shows it: its kind and the first line.

    >>> described(ValueError("no\nreally")), described(AssertionError())
    ('ValueError: no', 'AssertionError')
    """
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__


NOT_EXPORTED = {
    "data-dependent|DataDependent": "values decide the path, or sizes",
    "data pointer|numpy|dlpack|UntypedStorage|TypedStorage": "it reads the memory of tensors",
    "fake tensor in the exported": "it uses .data, or keeps tensors of a call",
    "in output, which is not a known type": "it returns a class in which torch sees no tensors",
    "SymInt|SymFloat|SymBool|symbolic": "sizes of tensors decide the path",
}
"""What is the matter, by what torch says of it."""


def not_exported(error: BaseException) -> str:
    r"""Why ``torch.export`` gave a model up, in a few words without torch's own terms.

    >>> not_exported(RuntimeError("Could not guard on data-dependent expression Eq(u0, 1)"))
    'values decide the path, or sizes'
    >>> not_exported(KeyError("mask")), not_exported(RuntimeError("No such thing. Please see\nthe manual"))
    ("KeyError: 'mask'", 'RuntimeError: No such thing')
    """
    said = f"{type(error).__name__}: {error}"
    known = (words for pattern, words in NOT_EXPORTED.items() if re.search(pattern, said))
    return next(known, re.split(r"\. |\.?\n", said.strip())[0][:100])
