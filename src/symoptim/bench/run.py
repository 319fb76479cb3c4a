"""Measure what was asked for and is not in the records yet, case by case."""

import gc
import json
import os
from dataclasses import dataclass
from itertools import groupby, product
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
    budget: Budget

    def tasks(self) -> "list[Task]":
        """Every case in every precision with every momentum."""
        return [Task(self, *one) for one in product(self.cases, self.dtypes, self.momenta)]


@dataclass(frozen=True, slots=True)
class Task:
    """A case in one precision with one momentum."""

    plan: Plan
    case: Case
    dtype: str
    momentum: float

    @property
    def contestants(self) -> list[Contestant]:
        """Those that have a place here: the full metric needs a network, AdamW has momentum of its own."""
        has_network = self.case.network is not None
        return [
            one
            for one in self.plan.contestants
            if (has_network or not one.needs_network) and (self.momentum or not one.has_own_momentum)
        ]

    @property
    def able(self) -> list[Contestant]:
        """Those that can be measured on this machine."""
        return [one for one in self.contestants if not self.missing(one)]

    @property
    def work(self) -> float:
        """How long it takes, roughly, beside other tasks."""
        return self.case.elements**0.5

    def missing(self, one: Contestant) -> str:
        """Why a contestant cannot be measured on this machine; empty if it can."""
        return one.missing(self.plan.device, DTYPES[self.dtype])

    def is_open(self, journal: Journal) -> bool:
        """Whether any contestant is still to be measured."""
        return self.case.is_own or not all(journal.has(self.line(one)) for one in self.able)

    def line(self, one: Contestant, missing: str = "") -> Line:
        """Beginning of a contestant's line, or all of it if it is missing."""
        reason = missing or self.missing(one)
        return {
            "case": self.case.name,
            "case_title": self.case.title,
            "tensors": len(self.case.weights),
            "elements": self.case.elements,
            "bytes": self.case.elements * DTYPES[self.dtype].itemsize,
            "dtype": self.dtype,
            "momentum": self.momentum,
            "contestant": one.name,
            "title": one.title,
        } | ({"missing": reason} if reason else {})


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
    """Measure everything in the plan that the journal does not have, and add it task by task."""
    tasks = plan.tasks()
    for task in tasks:
        if task.is_open(journal):
            watcher.expect(task.work)
    for _, alike in groupby(tasks, key=lambda task: (task.case, task.dtype)):
        _carry_out_alike(list(alike), journal, watcher)


def _carry_out_alike(tasks: list[Task], journal: Journal, watcher: Watcher) -> None:
    """Carry out tasks that differ in momentum alone: their tensors are made once."""
    plan, case, dtype = tasks[0].plan, tasks[0].case, tasks[0].dtype
    todo = [task for task in tasks if task.is_open(journal)]
    done = [task for task in tasks if task not in todo]
    if todo and (short := _shortage(case, dtype, plan.device)):
        for task in todo:
            journal.add(task.line(one, short) for one in task.contestants)
            watcher.done(task.work, case.title)
    elif todo:
        symmetries = any(one.needs_network for one in plan.contestants)
        tensors = CaseTensors(case, plan.device, DTYPES[dtype], symmetries=symmetries)
        passes = _passes(tensors) if case.is_own else {}
        for task in todo:
            journal.add(line | passes for line in _measured(task, tensors, watcher))
        del tensors
        gc.collect()
        if plan.device.type == "cuda":
            torch.cuda.empty_cache()
    lines = [task.line(one) for task in done for one in task.contestants if task.missing(one)]
    if new := [line for line in lines if not journal.names(line)]:
        journal.add(new)


def _measured(task: Task, tensors: CaseTensors, watcher: Watcher) -> list[Line]:
    """Lines of all contestants, those that are missing too."""
    able = task.able
    part, left = task.work / max(1, len(able) * (task.plan.budget.turns + 1)), task.work
    words = f"{task.case.title}, momentum {task.momentum:g}"

    def tick(title: str) -> None:
        nonlocal left
        now_done = min(part, left)
        left -= now_done
        watcher.done(now_done, f"{words}: {title}")

    measurement = Measurement(
        tensors=tensors,
        contestants=able,
        momentum=task.momentum,
        clock=clock_for(task.plan.device),
        budget=task.plan.budget,
        tick=tick,
    )
    measured = {line["contestant"]: line for line in measurement.run()}
    watcher.done(left, words)
    return [task.line(one) | measured.get(one.name, {}) for one in task.contestants]


def unplaced(plan: Plan) -> dict[str, str]:
    """Why contestants are not measured in any case of the plan, by title."""
    placed = {one.name for task in plan.tasks() for one in task.contestants}
    titles = ", ".join(case.title for case in plan.cases)
    networks = any(case.network for case in plan.cases)
    return {
        one.title: f"needs a network, which none of these is: {titles}"
        if one.needs_network and not networks
        else "has momentum of its own, and is measured with --momentum 0.9"
        for one in plan.contestants
        if one.name not in placed
    }


def _passes(tensors: CaseTensors) -> Line:
    """Seconds of forward and backward, before random weights are written, or why there are none."""
    try:
        return {"passes": seconds_of_passes(tensors, clock_for(tensors.device))}
    except Exception as error:  # of the user's own model in this precision
        return {"no_passes": f"forward and backward fail in {tensors.dtype}: {first_line(error)}"}


def _shortage(case: Case, dtype: str, device: torch.device) -> str:
    """Why a case does not fit the memory, empty if it does: weights, gradients, buffers, room to work."""
    size = case.elements * DTYPES[dtype].itemsize
    largest = max(torch.Size(weight.shape).numel() for weight in case.weights) * 4
    needed = 2 * size + 4 * case.elements + 4 * largest + 2 * COPIED[device.type]
    free = free_bytes(device)
    return "" if needed <= free else f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
