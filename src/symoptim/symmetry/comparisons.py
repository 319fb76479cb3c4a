"""Which sizes of its inputs a model compares with what.

Asked of torch: in a pass whose inputs have symbols for sizes, every comparison (``shape[1] > 512``) is noted
as a guard: a formula in these symbols that holds at the sizes of the example.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from traceback import walk_tb
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from symoptim.symmetry.quiet import quietly
from symoptim.symmetry.tensors import own_tensors
from symoptim.symmetry.variations import Call

ASK: Any = cast("Any", torch.ops.aten)._local_scalar_dense.default
"""Hands a value to Python."""
NBYTES: Any = cast("Any", torch.Tensor).nbytes.__get__
"""Bytes of a tensor: torch does not know them of one with symbols for sizes."""
SPLITS = ("split", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "hsplit", "vsplit", "dsplit")
"""Functions of torch that return as many tensors as a size gives: what is done with each may differ."""
LARGEST_INDEX = 2**31 - 2
"""Kernels with indices of 32 bits are for fewer entries than about that."""


class Guard(NamedTuple):
    """A comparison of sizes, as it turned out."""

    expression: Any
    place: str
    """The module that was at work."""
    by_python: bool
    """Whether it was not made by a function of torch."""


@dataclass(slots=True)
class Guards:
    """Comparisons of sizes that a model has made in a pass."""

    environment: Any
    placed: list[Guard] = field(default_factory=list[Guard])
    """Those that may choose what is computed."""
    torchs: list[Guard] = field(default_factory=list[Guard])
    """Those by which torch chooses how, or sees that sizes agree."""
    seen: int = 0


def _is_torchs(guard: Any) -> bool:
    """Whether an operation of torch compares: it chooses how to compute, not what."""
    if any(number.is_Integer and number >= LARGEST_INDEX for number in guard.expr.atoms()):
        return True  # kernels count with 32 or 64 bits; the file may be that of the module which calls them
    where = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    file, torchs = Path(getattr(where, "filename", "")), Path(torch.__file__).parent
    # Code without a file is taken for that of the module that calls it, which may be one of torch.nn. Its
    # functions call kernels that have limits of their own: cuDNN's batch normalization takes 880,801 rows.
    return file.is_relative_to(torchs) and not file.is_relative_to(torchs / "nn" / "modules")


@dataclass(slots=True)
class Pass:
    """A pass with symbols for sizes."""

    guards: Guards
    fakes: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    """Inputs by number."""
    failure: Exception | None = None
    failed_in: str = ""

    @property
    def looks_up(self) -> bool:
        """Whether it ended where a size was looked up in a table."""
        said = str(self.failure)
        return isinstance(self.failure, TypeError) and "unhashable" in said and "SymInt" in said


def symbolic_pass(model: nn.Module, call: Call, *, values: bool, by_python: bool = False) -> Pass:
    """Call a model on tensors with symbols for sizes.

    Args:
        model: a copy of the network, which may be left with tensors without values in its attributes.
        call: an example.
        values: whether values are computed too, so that the pass goes on where Python asks for them.
        by_python: whether operations that torch's kernels make of others are made so by Python. Of kernels,
            some take no symbols for sizes (padding); Python takes longer.
    """
    try:
        from torch._dispatch.python import enable_python_dispatcher
        from torch._subclasses.fake_tensor import FakeTensorConverter, FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
    except ImportError as failure:  # of a version of torch that has them elsewhere
        return Pass(Guards(None), failure=failure)
    environment: Any = ShapeEnv(duck_shape=False)
    mode: Any = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    if values:
        mode.propagate_real_tensors, mode.cache_enabled = True, False
        mode.fake_tensor_converter = FakeTensorConverter(copy_data=True)
    found = Pass(Guards(environment))

    def fake(number: int, tensor: Tensor) -> Tensor:
        context = cast("Any", StatelessSymbolicContext)(dynamic_sizes=[DimDynamic.DYNAMIC] * tensor.dim())
        found.fakes[number] = mode.from_tensor(tensor.detach(), symbolic_context=context)
        return found.fakes[number]

    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    places = {id(module): name for name, module in named}
    try:
        symbolic = call.changed(fake)
        tensors = {name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in own_tensors(model)}
        noting = _noting(found.guards, places)
        rules = enable_python_dispatcher() if by_python else nullcontext()
        with quietly(), noting, rules, mode, _Answers(), _InTorch(noting), torch.no_grad():
            functional_call(model, tensors, symbolic.inputs, dict(symbolic.keywords))
    except Exception as failure:  # what was compared before holds all the same
        found.failure, found.failed_in = failure, _module_of(failure, places)
    return found


def _module_of(failure: Exception, places: Mapping[int, str]) -> str:
    """Name of the module whose method was at work when something failed."""
    found = ""
    for frame, _ in walk_tb(failure.__traceback__):
        found = places.get(id(frame.f_locals.get("self")), found)
    return found


class _Answers(TorchDispatchMode):
    """Whoever asks for a value that is known besides its symbol gets it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = getattr(args[0], "real_tensor", None) if func is ASK else None
        return func(*args, **(kwargs or {})) if value is None else value.item()


class _noting:  # noqa: N801 - used as a statement
    """Note which module is at work when a guard is added."""

    def __init__(self, guards: Guards, places: Mapping[int, str]) -> None:
        self.guards, self.places = guards, places
        self.stack, self.hooks = [""], list[Any]()

    def note(self, *, by_python: bool = True, chooses: bool = False) -> None:
        """All guards that came since the last time are of the module on top."""
        found = self.guards.environment.guards[self.guards.seen :]
        for guard in found:
            kept = self.guards.placed if chooses or not _is_torchs(guard) else self.guards.torchs
            kept.append(Guard(guard.expr, self.stack[-1], by_python))
        self.guards.seen += len(found)

    def __enter__(self) -> None:
        thread = get_ident()  # hooks of all modules are called in every thread

        def enter(module: nn.Module, _: Any) -> None:
            if get_ident() == thread:
                self.note()
                self.stack.append(self.places.get(id(module), self.stack[-1]))

        def leave(*_: Any) -> None:
            if get_ident() == thread:
                self.note()
                self.stack.pop()

        hooks: Any = torch.nn.modules.module
        self.hooks = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        self.note()


class _InTorch(TorchFunctionMode):
    """Guards that come while a function of torch is at work are its own."""

    def __init__(self, noting: _noting) -> None:
        super().__init__()
        self.noting = noting

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.noting.note()
        try:
            return _bytes(args[0]) if func == NBYTES else func(*args, **(kwargs or {}))
        finally:
            self.noting.note(by_python=False, chooses=getattr(func, "__name__", "") in SPLITS)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
