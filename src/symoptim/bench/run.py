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
from symoptim.bench.measure import Budget, Measurement
from symoptim.bench.memory import free_bytes
from symoptim.bench.optimizers import Contestant
from symoptim.bench.records import Journal, Line
from symoptim.bench.roofline import COPIED
from symoptim.bench.tensors import CaseTensors, first_line
from symoptim.bench.training import seconds_of_passes
from symoptim.ensemble.numerics import describe_device
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
    budget: Budget


class Watcher(Protocol):
    """Shows progress."""

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
    """Measure everything in the plan that the journal does not have, and add it case by case."""
    todo = [
        (case, dtype, _open(plan, case, dtype, journal)) for case, dtype in product(plan.cases, plan.dtypes)
    ]
    for case, _, momenta in todo:
        watcher.expect(case.elements**0.5 * len(momenta))
    for case, dtype, momenta in todo:
        if momenta:
            _measure_case(plan, case, dtype, momenta, journal, watcher)
        missing = _missing(plan, case, dtype, {*plan.momenta} - {*momenta})
        if missing := [line for line in missing if not journal.names(line)]:
            journal.add(missing)


def unplaced(plan: Plan) -> dict[str, str]:
    """Why contestants are not measured in any case of the plan, by title."""
    placed = {
        one.name
        for case, momentum in product(plan.cases, plan.momenta)
        for one in _competing(plan.contestants, case, momentum)
    }
    titles = ", ".join(case.title for case in plan.cases)
    networks = any(case.network for case in plan.cases)
    return {
        one.title: f"needs a network, which none of these is: {titles}"
        if one.needs_network and not networks
        else "has momentum of its own, and is measured with --momentum 0.9"
        for one in plan.contestants
        if one.name not in placed
    }


def _open(plan: Plan, case: Case, dtype: str, journal: Journal) -> list[float]:
    """Momenta that are still to be measured."""
    able = [one for one in plan.contestants if not one.missing(plan.device, DTYPES[dtype])]
    return [
        momentum
        for momentum in plan.momenta
        if case.is_own
        or not all(
            journal.has(_setting(case, dtype, momentum) | {"contestant": one.name})
            for one in _competing(able, case, momentum)
        )
    ]


def _missing(plan: Plan, case: Case, dtype: str, momenta: set[float]) -> list[Line]:
    """Lines of contestants that cannot be measured here."""
    return [
        _setting(case, dtype, momentum) | _named(one) | {"missing": reason}
        for momentum in sorted(momenta)
        for one in _competing(plan.contestants, case, momentum)
        if (reason := one.missing(plan.device, DTYPES[dtype]))
    ]


def _competing(contestants: list[Contestant], case: Case, momentum: float) -> list[Contestant]:
    """Those that are measured: the full metric needs a network, AdamW has momentum of its own."""
    return [
        one
        for one in contestants
        if (case.network is not None or not one.needs_network) and (momentum or not one.has_own_momentum)
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
    if short := _shortage(case, dtype, plan.device):
        for momentum in momenta:
            competing = _competing(plan.contestants, case, momentum)
            setting = _setting(case, dtype, momentum)
            journal.add(setting | _named(one) | {"missing": short} for one in competing)
            watcher.done(amount, case.title)
        return
    symmetries = any(one.needs_network for one in plan.contestants)
    tensors = CaseTensors(case, plan.device, DTYPES[dtype], symmetries=symmetries)
    passes = _passes(tensors) if case.is_own else {}
    for momentum in momenta:
        setting = _setting(case, dtype, momentum) | passes
        lines = _lines(plan, tensors, momentum, lambda part, words: watcher.done(amount * part, words))
        journal.add(setting | line for line in lines)
    del tensors
    gc.collect()
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()


def _passes(tensors: CaseTensors) -> Line:
    """Seconds of forward and backward, before random weights are written, or why there are none."""
    try:
        return {"passes": seconds_of_passes(tensors, clock_for(tensors.device))}
    except Exception as error:  # of the user's own model in this precision
        return {"no_passes": f"forward and backward fail in {tensors.dtype}: {first_line(error)}"}


def _lines(
    plan: Plan, tensors: CaseTensors, momentum: float, done: Callable[[float, str], None]
) -> Iterator[Line]:
    """Lines of all contestants, those that are missing too."""
    competing = _competing(plan.contestants, tensors.case, momentum)
    reasons = {one.name: one.missing(plan.device, tensors.dtype) for one in competing}
    able = [one for one in competing if not reasons[one.name]]
    part, left = 1 / max(1, len(able) * (plan.budget.turns + 1)), 1.0
    words = f"{tensors.case.title}, momentum {momentum:g}"

    def tick(title: str) -> None:
        nonlocal left
        now_done = min(part, left)
        left -= now_done
        done(now_done, f"{words}: {title}")

    found = Measurement(
        tensors=tensors,
        contestants=able,
        momentum=momentum,
        clock=clock_for(plan.device),
        budget=plan.budget,
        tick=tick,
    ).run()
    done(left, words)
    measured = {line["contestant"]: line for line in found}
    for one in competing:
        yield measured.get(one.name) or {**_named(one), "missing": reasons[one.name]}


def _named(one: Contestant) -> Line:
    return {"contestant": one.name, "title": one.title}


def _shortage(case: Case, dtype: str, device: torch.device) -> str:
    """Why a case does not fit the memory, empty if it does: weights, gradients, buffers, room to work."""
    size = case.elements * DTYPES[dtype].itemsize
    largest = max(torch.Size(weight.shape).numel() for weight in case.weights) * 4
    needed = 2 * size + 4 * case.elements + 4 * largest + 2 * COPIED[device.type]
    free = free_bytes(device)
    return "" if needed <= free else f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
