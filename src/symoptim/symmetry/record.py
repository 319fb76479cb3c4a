"""From a model to its graph, by watching a real forward pass.

``if`` and loops over values are no hindrance: what was looked at is an operation like any other, has no
rule, and is pinned, so that every rescaling takes the same way through the model. In-place operations are
turned into values by ``torch.func.functionalize``.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from symoptim.errors import SymoptimError, TraceError
from symoptim.symmetry.environment import TRACING, seeds_restored
from symoptim.symmetry.failures import FailingModelError, require_plain, require_running, unwatched
from symoptim.symmetry.graph import Graph
from symoptim.symmetry.limits import OutOfRangeError, ResultSizes
from symoptim.symmetry.memory import address, reached_otherwise
from symoptim.symmetry.recorder import Earlier, Recorder
from symoptim.symmetry.tensors import left_alone, plain_tensors, tensors_in


def record(
    model: nn.Module,
    inputs: tuple[object, ...],
    keywords: Mapping[str, object] | None = None,
    series: "Series | None" = None,
    *,
    functional: bool = True,
    restore: bool = True,
    room: float | None = None,
) -> Graph:
    """Run a model once and note every operation; it is left as it is.

    Args:
        model: the network.
        inputs: positional arguments of a call; their values decide which way it goes.
        keywords: its other arguments.
        series: what passes share that follow each other.
        functional: whether to turn operations in place into values. If not, what modules return is known.
        restore: whether to bring back tensors in attributes of modules; later passes use the new ones if not.
        room: bytes that the results of a trial may take. Why a trial fails is not looked for.

    Returns:
        The graph of that way.

    Raises:
        TraceError: the model fails, or values leave torch, and may come back.
    """
    named = dict(keywords or {})
    most = math.inf if room is None else room
    series = Series() if series is None else series
    run = partial(_recorded, model, inputs, named, series=series, restore=restore, room=most)
    with TRACING:
        require_plain(model)
        if not functional:
            return run(partial)
        try:
            return run(functionalize)
        except SymoptimError:
            raise
        except OutOfRangeError as error:
            raise FailingModelError(f"the model fails on these inputs: {error}") from error
        except Exception as error:  # the model's own, or of what is refused there, such as derivatives
            if "HigherOrderOperator" in str(error):
                raise unwatched(error) from error
        try:
            return run(partial)
        except SymoptimError:
            raise
        except Exception as error:
            if room is None:
                require_running(model, inputs, named)
            raise unwatched(error) from error  # of watching: the model runs


def _recorded(
    model: nn.Module,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
    functional: Any,
    *,
    series: "Series",
    restore: bool,
    room: float,
) -> Graph:
    """The graph of one pass, which is made ``functional``."""
    recorder = Recorder(model, series.earlier, room, series.sizes)
    tensors = _leaves(recorder, model, series)
    given: list[Any] = tree_leaves((inputs, named))
    for number, tensor in enumerate(given):
        if isinstance(tensor, Tensor):
            recorder.add_leaf(tensor, "input", f"input {number}", original=tensor)

    def run(tensors: dict[str, Tensor], inputs: tuple[object, ...], keywords: dict[str, Any]) -> Any:
        output = functional_call(model, tensors, inputs, keywords)
        # What the model keeps is seen by the next call, or by whoever looks: as good as returned.
        kept = [tensor for tensor in plain_tensors(model) if id(tensor) not in before]
        return tensors_in(output), dict(tensors), kept

    before = set(map(id, plain_tensors(model)))
    with ExitStack() as stack:
        stack.enter_context(left_alone(model, attributes=restore))
        stack.enter_context(seeds_restored())  # what dropout draws is not missing later
        stack.enter_context(cast("Any", sdpa_kernel)(SDPBackend.MATH))  # attention written out
        stack.enter_context(recorder.places())
        stack.enter_context(_NoDetours(recorder))
        stack.enter_context(recorder)
        stack.callback(series.forget, recorder.written)
        outputs, after, kept = functional(run)(tensors, inputs, named)
    graph = recorder.graph([*outputs, *kept], after)
    recorder.earlier.add(graph, recorder.alive)
    return replace(graph, kept=frozenset(recorder.refer(one).index for one in kept))


class Series:
    """What passes share that follow each other: it takes longer to make than a pass."""

    def __init__(self) -> None:
        """Note all tensors there are now."""
        self.earlier, self.sizes = Earlier(), ResultSizes()
        self.copies: dict[Tensor, tuple[Tensor, int]] = {}
        """Copies of parameters that no pass has written to, and the version of each parameter."""

    def copy_of(self, parameter: Tensor) -> Tensor:
        """A copy for one pass; others may have the same memory."""
        version = -1 if parameter.is_inference() else parameter._version
        copy, known = self.copies.get(parameter, (parameter, None))
        if known != version:
            copy = parameter.detach().clone()
            self.copies[parameter] = copy, version
        return copy.detach()

    def forget(self, written: Collection[int]) -> None:
        """Do not use copies again whose memory begins at one of these addresses."""
        self.copies = {one: kept for one, kept in self.copies.items() if address(kept[0]) not in written}


def _leaves(recorder: Recorder, model: nn.Module, series: Series) -> dict[str, Tensor]:
    """Copies of parameters and buffers, for the pass may write to them, as leaves of the graph."""
    saved = model.state_dict()
    tensors: dict[str, Tensor] = {}
    foreign = reached_otherwise(model)
    for name, parameter in model.named_parameters():
        # What writes to a weight by way of an array is not seen.
        tensors[name] = parameter.detach().clone() if foreign else series.copy_of(parameter)
        recorder.add_leaf(tensors[name], "parameter", name, original=parameter)
    for tensor in foreign:
        recorder.add_leaf(tensor, "constant", "memory", original=tensor)
    for name, buffer in model.named_buffers():
        tensors[name] = buffer.detach().clone()
        moves = name in saved or not buffer.is_floating_point()  # what is not saved is made anew by others
        recorder.add_leaf(tensors[name], "buffer" if moves else "input", name, original=buffer)
    return tensors


class _NoDetours(TorchFunctionMode):
    """Refuses to hand values to what cannot be watched, and whose results would look like constants."""

    def __init__(self, recorder: Recorder) -> None:
        """With the recorder that notes exceptions, also of what has become no operation yet."""
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _tensor.__bool__ and args[0].dtype != torch.bool:
            return func(args[0] != 0)  # seen to ask for a truth value, not for a number
        if func is _tensor.tolist and args[0].numel() <= MOST_NUMBERS:
            return _numbers(args[0])
        if func is one_hot and _classes(*args, **(kwargs or {})) > 0:
            return _one_hot(args[0], _classes(*args, **(kwargs or {})))
        if func is _tensor.__deepcopy__:
            return _copy_with(*args, **(kwargs or {}))
        if func in FROM_LISTS:
            return _joined(func(*args, **(kwargs or {})), args)
        if func in SPLITS and len(args) > 1 and isinstance(args[1], Tensor):
            args = (args[0], _numbers(args[1]), *args[2:])  # seen to ask for these
        if func in DETOURS:
            raise TraceError(
                f"the model calls {func.__name__}() on a tensor and goes on with what torch does not see: "
                "stay within torch's own operations"
            )
        with self.recorder.noting():
            return func(*args, **(kwargs or {}))


def _joined(tensor: Tensor, args: Sequence[object]) -> Tensor:
    """The same tensor, of a list, made of the tensors in that list by operations that are seen."""
    found: list[Any] = tree_leaves(args[-1])
    if isinstance(args[-1], Tensor) or not any(isinstance(one, Tensor) for one in found):
        return tensor
    parts = [torch.as_tensor(one).detach().to(tensor.device, tensor.dtype).reshape(()) for one in found]
    return torch.stack(parts).reshape(tensor.shape)


def _classes(_: Tensor, num_classes: int = -1) -> int:
    """How many classes ``one_hot`` is given."""
    return num_classes


def _one_hot(tensor: Tensor, num_classes: int) -> Tensor:
    """The same as torch's, which asks for the smallest and the largest number only to check them."""
    return (tensor[..., None] == torch.arange(num_classes, device=tensor.device)).to(tensor.dtype)


def _copy_with(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A deep copy of a tensor by an operation that is seen."""
    return memo.setdefault(id(tensor), tensor.clone())


def _numbers(tensor: Tensor) -> Any:
    """The same as ``tolist``, one number at a time: each is seen to be looked at."""
    return [_numbers(one) for one in tensor.unbind()] if tensor.dim() else tensor.item()


_tensor: Any = Tensor  # torch leaves some of its methods untyped
FROM_LISTS = (torch.tensor, torch.as_tensor, torch.asarray, _tensor.new_tensor)
SPLITS = (cast("Any", torch).tensor_split, _tensor.tensor_split)
MOST_NUMBERS = 10_000
"""Elements of a tensor that a model may make a list of, such as sizes of parts."""
DETOURS = (_tensor.numpy, _tensor.tolist, _tensor.__array__, _tensor.__dlpack__)
