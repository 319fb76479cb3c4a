"""What the benchmarks share: process time of a call, and a file of figures that says where they come from."""

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def seconds(work: Callable[..., object], *arguments: object) -> float:
    """Process time of a call."""
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def write_figures(path: Path, figures: list[dict[str, Any]]) -> None:
    """Write figures as JSON, with the machine and the version of torch, and say so."""
    machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**machine, "figures": figures}, indent=2) + "\n")
    print(f"written: {path}")
