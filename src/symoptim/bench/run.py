"""Measure what was asked for and is not in the records yet, case by case."""

import gc
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import torch

from symoptim.bench.cases import Case
from symoptim.bench.clock import clock_for
from symoptim.bench.contestants import Contestant
from symoptim.bench.floor import COPIED
from symoptim.bench.material import Material
from symoptim.bench.memory import free_bytes
from symoptim.bench.records import Journal, Line
from symoptim.bench.turns import Pace, measure
from symoptim.support.devices import describe_device
from symoptim.support.provenance import command_line, describe_process, now, version_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OTHERS = ("geoopt", "adamp", "pytorch-optimizer", "emerging-optimizers", "triton")
"""Packages whose versions are worth recording."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All there is to measure."""

    cases: tuple[Case, ...]
    contestants: list[Contestant]
    momenta: tuple[float, ...]
    dtypes: tuple[str, ...]
    device: torch.device
    pace: Pace


class Watcher(Protocol):
    """Is told how far the work has come."""

    def expect(self, amount: float) -> None:
        """So much more is to do."""
        ...

    def done(self, amount: float, words: str) -> None:
        """So much of it is done."""
        ...


def session_of(device: torch.device) -> Line:
    """Where figures of this process come from."""
    about: dict[str, Any] = json.loads(describe_process())
    process = about.pop("process")
    about["packages"] |= {name: version for name in OTHERS if (version := version_of(name))}
    cpu = device.type == "cpu"
    return {
        "session": f"{now()} {process}",
        **about,
        "machine": describe_device(device),
        "device": device.type,
        "threads": torch.get_num_threads() if cpu else None,
        "spin": os.environ.get("GOMP_SPINCOUNT") if cpu else None,
        "torch": torch.__version__,
        "command": command_line(),
    }


def carry_out(plan: Plan, journal: Journal, watcher: Watcher) -> None:
    """Measure everything in the plan that the journal does not have.

    Args:
        plan: what to measure.
        journal: where it goes, case by case.
        watcher: told about progress.
    """
    todo = [
        (case, dtype, _open(plan, case, dtype, journal)) for case, dtype in product(plan.cases, plan.dtypes)
    ]
    for case, _, momenta in todo:
        watcher.expect(case.elements**0.5 * len(momenta))
    for case, dtype, momenta in todo:
        if momenta:
            _measure_case(plan, case, dtype, momenta, journal, watcher)
        missing = _missing(plan, case, dtype, {*plan.momenta} - {*momenta}, journal)
        if missing:
            journal.add(missing)


def out_of_place(plan: Plan) -> dict[str, str]:
    """Why contestants have no place in any case of the plan, by title."""
    placed = {
        one.name
        for case, momentum in product(plan.cases, plan.momenta)
        for one in _competing(plan.contestants, case, momentum)
    }
    titles = ", ".join(case.title for case in plan.cases)
    whole = f"needs a network, which none of these is: {titles}"
    own = "has momentum of its own, and is measured with --momentum 0.9"
    absent = [one for one in plan.contestants if one.name not in placed]
    return {one.title: whole if one.formula is None else own for one in absent}


def _open(plan: Plan, case: Case, dtype: str, journal: Journal) -> list[float]:
    """Momenta somebody has still to be measured with."""
    able = [c for c in plan.contestants if not c.missing(plan.device, DTYPES[dtype])]
    return [
        momentum
        for momentum in plan.momenta
        if not all(
            journal.has(_setting(case, dtype, momentum) | {"contestant": one.name})
            for one in _competing(able, case, momentum)
        )
    ]


def _missing(plan: Plan, case: Case, dtype: str, momenta: set[float], journal: Journal) -> list[Line]:
    """Lines of those who cannot be measured here and were not named before."""
    lines = [
        _setting(case, dtype, momentum) | _named(one) | {"missing": reason}
        for momentum in sorted(momenta)
        for one in _competing(plan.contestants, case, momentum)
        if (reason := one.missing(plan.device, DTYPES[dtype]))
    ]
    return [line for line in lines if not journal.names(line)]


def _competing(contestants: list[Contestant], case: Case, momentum: float) -> list[Contestant]:
    """Those who have a place in a case: the full metric needs a network, AdamW has momentum of its own."""
    return [
        one
        for one in contestants
        if (one.formula is not None or case.network is not None) and (momentum or not one.always_remembers)
    ]


def _setting(case: Case, dtype: str, momentum: float) -> Line:
    return {
        "case": case.name,
        "case_title": case.title,
        "tensors": len(case.weights),
        "elements": case.elements,
        "bytes": case.elements * DTYPES[dtype].itemsize,
        "dtype": dtype,
        "momentum": momentum,
    }


def _measure_case(
    plan: Plan, case: Case, dtype: str, momenta: list[float], journal: Journal, watcher: Watcher
) -> None:
    """Measure a case with every momentum; it is made once."""
    amount = case.elements**0.5
    short = _lack(case, dtype, plan.device)
    if short:
        for momentum in momenta:
            everybody = _competing(plan.contestants, case, momentum)
            journal.add(
                _setting(case, dtype, momentum) | _named(one) | {"missing": short} for one in everybody
            )
            watcher.done(amount, case.title)
        return
    whole = any(one.formula is None for one in plan.contestants)
    material = Material(case, plan.device, DTYPES[dtype], symmetries=whole)
    for momentum in momenta:
        journal.add(
            _lines(plan, material, dtype, momentum, lambda part, words: watcher.done(amount * part, words))
        )
    del material
    gc.collect()
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()


def _lines(
    plan: Plan, material: Material, dtype: str, momentum: float, done: Callable[[float, str], None]
) -> Iterator[Line]:
    """Lines of everybody, those who are not there too."""
    case = material.case
    everybody = _competing(plan.contestants, case, momentum)
    reasons = {one.name: one.missing(plan.device, material.dtype) for one in everybody}
    able = [one for one in everybody if not reasons[one.name]]
    part, left = 1 / max(1, len(able) * (plan.pace.turns + 1)), 1.0

    def tick(title: str) -> None:
        nonlocal left
        now_done = min(part, left)
        left -= now_done
        done(now_done, f"{case.title}, momentum {momentum:g}: {title}")

    clock = clock_for(plan.device)
    found = measure(material, able, momentum=momentum, clock=clock, pace=plan.pace, tick=tick)
    done(left, f"{case.title}, momentum {momentum:g}")
    measured = {line["contestant"]: line for line in found}
    for one in everybody:
        told = measured.get(one.name) or {**_named(one), "missing": reasons[one.name]}
        yield _setting(case, dtype, momentum) | told


def _named(one: Contestant) -> Line:
    return {"contestant": one.name, "title": one.title}


def _lack(case: Case, dtype: str, device: torch.device) -> str:
    """Why a case does not fit the memory, empty if it does: weights, gradients, buffers, room to work."""
    size = case.elements * DTYPES[dtype].itemsize
    largest = max(torch.Size(weight.shape).numel() for weight in case.weights) * 4
    needed = 2 * size + 4 * case.elements + 4 * largest + 2 * COPIED[device.type]
    free = free_bytes(device)
    if needed <= free:
        return ""
    return f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
