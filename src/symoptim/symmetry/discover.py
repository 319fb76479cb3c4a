"""``discover``: from a model and an example input to the group of its rescalings."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from symoptim.symmetry.ansatz import Ansatz
from symoptim.symmetry.form import FIXED
from symoptim.symmetry.interpret import Findings, interpret
from symoptim.symmetry.rules import RULES
from symoptim.symmetry.solve import NullSpace, null_space
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import Moved, SymmetrySpec
from symoptim.symmetry.tensors import unique_values
from symoptim.symmetry.trace import trace


def discover(
    model: nn.Module,
    example_inputs: tuple[Any, ...],
    keywords: Mapping[str, Any] | None = None,
    *,
    ansatz: Ansatz = "separable",
) -> SymmetrySpec:
    """Find every positive rescaling of a model's weights that changes none of its outputs.

    The mode of the model counts: in training mode batch normalization hides the scale of its input, in
    evaluation mode running statistics have to move along. The model is left as it is.

    Args:
        model: the network.
        example_inputs: positional arguments of a call; their values do not matter, their shapes do.
        keywords: its other arguments.
        ansatz: ``element`` gives every entry of a parameter an unknown of its own: for tests, it is slow.

    Returns:
        The group.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> len(discover(model, (torch.rand(5, 3),)))
    4
    """
    graph = trace(model, example_inputs, keywords, known=RULES)
    findings = interpret(graph, ansatz)
    system = findings.system
    of_parameter = torch.zeros(system.count, dtype=torch.bool)
    for form in findings.tensors.values():
        for term in form.terms:
            of_parameter[term[term > FIXED]] = True
    space = null_space(system.count, system.rows, of_parameter)
    return _spec(findings, space, of_parameter)


def _spec(findings: Findings, space: NullSpace, of_parameter: Tensor) -> SymmetrySpec:
    """Only the unknowns of the model's tensors, and the generators that move any of them."""
    mine = space.combination.chosen(of_parameter[space.combination.rows])
    used, _ = unique_values(mine.columns)
    generator = torch.full((len(space.free),), -1)
    generator[used] = torch.arange(len(used))
    unknowns = of_parameter.nonzero().flatten()
    scale = torch.full((len(of_parameter),), -1)
    scale[unknowns] = torch.arange(len(unknowns))
    tensors = {
        name: Moved(form.shape, tuple(scale[term.clamp(min=FIXED)] for term in form.terms))
        for name, form in findings.tensors.items()
    }
    return SymmetrySpec(
        tensors,
        dict(findings.aliases),
        _names(findings, space.free[used]),
        len(unknowns),
        Sparse(scale[mine.rows], generator[mine.columns], mine.values),
        {f"{name} in {place or 'the model'}": n for (name, place), n in findings.unknown.items()},
        dict(findings.pinned),
        {f"{name} in {place} (eps {eps:g})": n for (name, place, eps), n in findings.approximate.items()},
    )


def _names(findings: Findings, free: Tensor) -> tuple[str, ...]:
    """Where each generator's unit is: the operation that brought its unknown, and its number there."""
    starts = torch.tensor([first for first, _ in findings.origins] or [0])
    which = torch.searchsorted(starts, free, right=True) - 1
    names: list[str] = []
    for unknown, place in zip(map(int, free), map(int, which), strict=True):
        start, words = findings.origins[place] if place >= 0 else (1, "parameter")
        names.append(f"{words} [{unknown - start}]")
    return tuple(names)
