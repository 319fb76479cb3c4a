"""A group as JSON, and back."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from symoptim.errors import OptionError, with_article
from symoptim.symmetry.sparse import Sparse
from symoptim.symmetry.spec import Moved, SymmetrySpec
from symoptim.symmetry.tensors import on_cpu, whole_numbers

FORMAT = "symoptim symmetries 1"


@on_cpu
def to_json(spec: SymmetrySpec) -> str:
    """All of a group as text."""
    return json.dumps(
        {
            "format": FORMAT,
            "dimension": len(spec),
            "unknown": dict(spec.unknown),
            "pinned": dict(spec.pinned),
            "approximate": dict(spec.approximate),
            "recorded": spec.recorded,
            "modes": dict(spec.modes),
            "unreached": list(spec.unreached),
            "paths": list(spec.paths),
            "aliases": dict(spec.aliases),
            "generators": list(spec.names),
            "scales": spec.scales,
            "exponents": {
                "scale": whole_numbers(spec.exponents.rows),
                "generator": whole_numbers(spec.exponents.columns),
                "exponent": [float(value) for value in spec.exponents.values],
            },
            "tensors": {
                name: {"shape": list(moved.shape), "terms": [_term(term) for term in moved.terms]}
                for name, moved in spec.tensors.items()
            },
        }
    )


def _term(term: Tensor) -> dict[str, list[int]]:
    return {"shape": list(term.shape), "scales": whole_numbers(term.reshape(-1))}


@on_cpu
def from_json(text: str) -> SymmetrySpec:
    """A group from text that :func:`to_json` wrote.

    Args:
        text: the JSON.

    Returns:
        The group.

    Raises:
        OptionError: it is something else.
    """
    if not isinstance(text, str | bytes | bytearray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            "these are no symmetries: not the text that to_json() wrote, but "
            f"{with_article(type(text).__name__)}: give the text, such as that of a file, path.read_text()"
        )
    try:
        found = json.loads(text)
    except ValueError as error:  # of JSON, and of bytes that are no text
        if is_file(text):
            message = f"{text!r} is the path of a file: give its text, Path({text!r}).read_text()"
            raise OptionError(message) from error
        raise OptionError(f"these are no symmetries: not JSON ({error})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise OptionError(f"these are no symmetries: JSON without \"format\": '{FORMAT}'")
    return _spec(found)  # pyright: ignore[reportUnknownArgumentType]


def is_file(text: object) -> bool:
    """Whether a text is the path of a file that is there."""
    try:
        return isinstance(text, str) and Path(text).is_file()
    except (OSError, ValueError):  # it is too long for a path, or has a zero in it
        return False


def _spec(found: Mapping[str, Any]) -> SymmetrySpec:
    entries = found["exponents"]
    return SymmetrySpec(
        tensors={
            name: Moved(
                tuple(one["shape"]),
                tuple(_integers(term["scales"]).reshape(term["shape"]) for term in one["terms"]),
            )
            for name, one in found["tensors"].items()
        },
        aliases=found["aliases"],
        names=tuple(found["generators"]),
        scales=found["scales"],
        exponents=Sparse(
            _integers(entries["scale"]),
            _integers(entries["generator"]),
            torch.tensor(entries["exponent"], dtype=torch.float64),
        ),
        unknown=found["unknown"],
        pinned=found["pinned"],
        approximate=found["approximate"],
        recorded=found["recorded"],
        modes=found.get("modes", {}),
        unreached=tuple(found.get("unreached", ())),
        paths=tuple(found.get("paths", ())),
    )


def _integers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
