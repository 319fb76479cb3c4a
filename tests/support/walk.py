"""How far a reader has to walk: files and functions of the package that one call passes through.

    python -m tests.support.walk

prints the table of CONTRIBUTING.md, in a process of its own where nothing has been called before.
"""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
from torch import nn

import symoptim

PACKAGE = str(Path(symoptim.__file__).parent)


class Walk(NamedTuple):
    """What one call passes through."""

    files: int
    functions: int
    switches: int
    """How often the call goes on in another file."""


def walk(call: Callable[[], object]) -> Walk:
    """Count files and functions of the package that a call enters."""
    entered: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            entered.append((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    # Modules that are imported only now count too; package files hold a docstring alone.
    files = [file for file, function in entered if (Path(file).name, function) != ("__init__.py", "<module>")]
    switches = sum(one != other for one, other in itertools.pairwise(files))
    return Walk(len(set(files)), len(set(entered)), switches)


def walks() -> dict[str, Walk]:
    """The walks of the README's network: construction, first step and later steps on a CPU."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10)
    )
    images, labels = torch.rand(32, 1, 8, 8), torch.randint(10, (32,))
    spec = symoptim.discover(model, (images,))
    groups = symoptim.param_groups(model)

    def scaled() -> torch.optim.Optimizer:
        return symoptim.ScaledSGD(groups, lr=1e-2, momentum=0.9)

    def full() -> torch.optim.Optimizer:
        return symoptim.FullMetricSGD(model, spec, lr=1e-2, momentum=0.9)

    found: dict[str, Walk] = {}
    for name, make in {"ScaledSGD": scaled, "FullMetricSGD": full}.items():
        made: list[torch.optim.Optimizer] = []
        found[f"{name}, constructor"] = walk(lambda make=make, made=made: made.append(make()))
        (optimizer,) = made
        for when in ("first step", "second step", "later steps"):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            found[f"{name}, {when}"] = walk(optimizer.step)
    return {name: one for name, one in found.items() if "second" not in name}


if __name__ == "__main__":
    print("| call | files | functions | switches |\n|---|---|---|---|")  # noqa: T201 - a script
    for name, (files, functions, switches) in walks().items():
        print(f"| {name} | {files} | {functions} | {switches} |")  # noqa: T201
