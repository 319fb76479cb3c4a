"""Whether an exported program computes what the model does: a model may ask whether it is being exported."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_leaves, tree_map

from symoptim.symmetry.copies import copied
from symoptim.symmetry.isolation import seeds_restored, set_seeds
from symoptim.symmetry.ranges import RangesChecked
from symoptim.symmetry.tensors import model_tensors, tensors_in

CLOSE = 1e-3  # of the largest output: programs may add in another order


def does_the_same(
    program: ExportedProgram, model: nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> bool:
    """Run both on the same inputs, with the same random numbers, and compare what comes out.

    Args:
        program: of operations that write nowhere.
        model: what was exported; it is left as it is.
        inputs: positional arguments of the call.
        keywords: its other arguments.

    Returns:
        Whether outputs agree; True where the model has none to compare, False where only the program fails.
    """
    arguments: Any = (inputs, dict(keywords))
    if any(not _has_values(one) for one in (*model_tensors(model).values(), *tree_leaves(arguments))):
        return True
    # What torch compiles when it is called, such as torch.cond, must not be called under a mode.
    compiled = any(isinstance(node.target, HigherOrderOperator) for node in program.graph.nodes)
    with seeds_restored(), torch.no_grad(), nullcontext() if compiled else RangesChecked():
        set_seeds(0)
        mine, named = tree_map(_copied, arguments)
        try:
            expected = tensors_in(copied(model, wide=False)(*mine, **named))
        except Exception:  # the model does not run: the next pass says why
            return True
        set_seeds(0)
        try:
            found = _run(program, model, tree_leaves(tree_map(_copied, arguments)))
        except Exception:  # the program does not, of whatever kind: it is another one
            return False
    return len(found) == len(expected) and all(map(_close, found, expected))


def _has_values(value: Any) -> bool:
    return not isinstance(value, Tensor) or (type(value) in (Tensor, nn.Parameter) and not value.is_meta)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _run(program: ExportedProgram, model: nn.Module, given: list[Any]) -> list[Tensor]:
    """What the program returns."""
    tensors, constants = model_tensors(model), cast("Mapping[str, Any]", program.constants)
    rest = iter(given)
    arguments = [
        next(rest)
        if spec.kind is InputKind.USER_INPUT
        else tensors.get(spec.target or "", constants.get(spec.target or ""))
        for spec in program.graph_signature.input_specs
    ]
    results = cast("Iterable[Any]", torch.fx.Interpreter(program.graph_module).run(*arguments))
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    pairs = zip(kinds, results, strict=True)
    return [one for kind, one in pairs if kind is OutputKind.USER_OUTPUT and isinstance(one, Tensor)]


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return bool((one != other).double().mean() < CLOSE) if one.numel() else True
    size = float(other.abs().nan_to_num(0, 0, 0).max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=CLOSE, atol=CLOSE * size, equal_nan=True)
