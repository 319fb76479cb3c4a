"""What the benchmarks share: process time of a call, and a file of figures that says where they come from."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from symoptim.support.devices import describe_device
from symoptim.support.provenance import code_digest, command_line, commit

CPU = torch.device("cpu")


def seconds(work: Callable[..., object], *arguments: object) -> float:
    """Process time of a call."""
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def write_figures(path: Path, figures: list[dict[str, Any]], device: torch.device = CPU) -> None:
    """Write figures as JSON, with the machine, the code and the command they come from, and say so."""
    origin = {
        "machine": describe_device(device),
        "torch": torch.__version__,
        "code": code_digest(),
        "commit": commit(),
        "command": command_line(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**origin, "figures": figures}, indent=2) + "\n")
    print(f"written: {path}")
