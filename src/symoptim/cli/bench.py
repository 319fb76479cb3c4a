"""``symoptim bench``: what a step costs on this machine, on built-in cases or on a model of one's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer import Argument, Option

from symoptim.bench.records import Journal, Step, only, read_steps
from symoptim.bench.tables import describe, page_beside, places, tables, write_page
from symoptim.cli import options
from symoptim.cli.discover import Inputs
from symoptim.cli.report import tell_written
from symoptim.errors import OptionError
from symoptim.support.provenance import command_line

if TYPE_CHECKING:
    from symoptim.bench.run import Plan

Targets = Annotated[
    list[str] | None,
    Argument(
        metavar="MODULE:FACTORY | FILE",
        help="What makes your model, as in symoptim discover; or, with --report, files of records.",
    ),
]
Report = Annotated[bool, Option("--report", help="Measure nothing: tables of FILEs.")]
Cases = Annotated[
    str | None,
    Option(
        help="Of resnet50, gpt2, gpt-1.3b, tiny, matrix, segnet.",
        show_default="resnet50,segnet,tiny on a CPU, all on a GPU",
    ),
]
Optimizers = Annotated[
    str | None,
    Option(
        "--optimizers",
        "--rivals",
        help="Of sgd-fused (always there), sgd-foreach, adamw-fused, adamw-foreach, sm-fused, sm-reference, "
        "un-fused, un-reference, full-fused, full-reference, full-adamw, invariant-adamw.",
        show_default="all; for a model the fused ones and those of AdamW",
    ),
]
Momenta = Annotated[str, Option(help="Momentum factors, separated by commas.")]
Precision = Annotated[str, Option(help="Of float32, bfloat16.")]
Threads = Annotated[int, Option(help="Threads on a CPU: process time with one, wall time with more.", min=1)]
Turns = Annotated[int, Option(help="Turns of every optimizer in every case, at most.", min=1)]
Seconds = Annotated[
    float,
    Option(help="For all turns of a case: shared evenly, with three turns each at least.", min=0),
]
WithCompiled = Annotated[
    bool, Option("--compile", help="Measure torch.compile too, in a clone: python benchmarks/rivals.py.")
]
Out = Annotated[
    Path | None,
    Option(
        help="File of the records, which are added to it; tables go beside it.",
        show_default="results/bench-DEVICE.jsonl",
    ),
]


def bench(
    targets: Targets = None,
    inputs: Inputs = None,
    device: options.Device = "auto",
    threads: Threads = 1,
    cases: Cases = None,
    optimizers: Optimizers = None,
    momentum: Momenta = "0,0.9",
    dtype: Precision = "float32",
    turns: Turns = 21,
    seconds: Seconds = 20.0,
    compiled: WithCompiled = False,
    report: Report = False,
    out: Out = None,
) -> None:
    """Time a step of our optimizers beside torch's, on your model or on built-in cases.

    Timings are reported only for optimizers that match a float64 reference. Everything goes to a file of JSON
    lines as it is measured. Stop at any moment and start again: built-in cases that the file has from this
    machine with this code are not measured again.
    """
    if report:
        files = [Path(target) for target in targets or ()]
        if not files:
            raise OptionError(_GO_TOGETHER)
        chosen = only(read_steps(files), _names("--cases", cases), _names("--optimizers", optimizers))
        show_results(chosen, out or files[0])
        return
    import torch  # it takes a second, which a report need not wait for

    from symoptim.bench.measure import Budget
    from symoptim.bench.run import DTYPES, Plan, session_of, unplaced
    from symoptim.support.devices import device_named

    where, names = device_named(device), _names("--optimizers", optimizers)
    torch.set_num_threads(threads)
    plan = Plan(
        cases=_cases(targets, inputs, _names("--cases", cases), where.type),
        contestants=_contestants(names, is_own=bool(targets), compiled=compiled),
        momenta=_momenta(momentum),
        dtypes=_known(dtype, tuple(DTYPES)),
        device=where,
        budget=Budget(turns=turns, seconds=seconds),
    )
    path = out or Path("results") / f"bench-{plan.device.type}.jsonl"
    page_beside(path)  # which is refused before anything is measured
    before = path.stat().st_size if path.exists() else 0
    measure_all(plan, Journal(path, session_of(plan.device)))
    notes = [f"{title}: {reason}" for title, reason in unplaced(plan).items() if names]
    if path.stat().st_size == before:
        notes.append(
            f"nothing was left to measure: {path} has all that can be measured here. "
            "For more turns choose another --out"
        )
    shown = [one.name for one in plan.contestants] if targets else names
    show_results(only(read_steps([path]), [case.name for case in plan.cases], shown), path)
    for note in notes:
        Console(stderr=True).print(note, highlight=False, markup=False, soft_wrap=True)


_GO_TOGETHER = (
    "--report and FILEs go together: symoptim bench --report results/bench-cpu.jsonl; a model is named "
    "MODULE:FACTORY: symoptim bench my_model.py:make --input 8,3,224,224"
)


def _cases(targets: list[str] | None, inputs: list[str] | None, names: tuple[str, ...] | None, device: str):
    """The user's model as a case, or built-in ones."""
    from symoptim.bench.cases import CASES, Example, case_named, case_of
    from symoptim.cli.models import load_model

    if not targets:
        if inputs:
            raise OptionError("--input is for a model: symoptim bench my_model.py:make --input 8,3,224,224")
        usual = ("resnet50", "segnet", "tiny") if device == "cpu" else tuple(CASES)
        return tuple(map(case_named, names or usual))
    if len(targets) > 1 or ":" not in targets[0]:
        raise OptionError(_GO_TOGETHER)
    if names:
        raise OptionError("--cases are built-in ones, and a model is a case itself: leave one of them out")
    call = load_model(targets[0], inputs or [])
    call.require_running()
    return (case_of(targets[0], Example(*call)),)


def _contestants(names: tuple[str, ...] | None, *, is_own: bool, compiled: bool):
    from symoptim.bench.optimizers import CONTESTANTS, FOR_MODELS, contestants_named

    if compiled and not any(one.compiles for one in CONTESTANTS.values()):
        raise OptionError(
            "--compile: compiled steps are measured in a clone, by python benchmarks/rivals.py --compile"
        )
    return contestants_named(names or (FOR_MODELS if is_own else None), compiled=compiled)


class Bar:
    """Shows how far the work has come, and the time left."""

    def __init__(self, progress: Progress) -> None:
        """Show it there."""
        self.progress, self.total, self.last_case = progress, 0.0, ""
        self.task = progress.add_task("preparing", total=None)

    def expect(self, amount: float) -> None:
        """So much more is to do."""
        self.total += amount
        self.progress.update(self.task, total=self.total)

    def done(self, amount: float, words: str) -> None:
        """So much of it is done; where no bar can be seen, a line for every case."""
        self.progress.update(self.task, advance=amount, description=words)
        case, _, _ = words.rpartition(": ")
        case = case or words
        if not self.progress.console.is_terminal and case != self.last_case:
            self.progress.console.print(case, highlight=False, markup=False)
            self.last_case = case


def measure_all(plan: "Plan", journal: Journal) -> None:
    """Measure what the journal does not have, with a progress bar.

    Raises:
        Exit: the user pressed Ctrl-C; the journal can be taken up.
    """
    from symoptim.bench.run import carry_out

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as progress:
            carry_out(plan, journal, Bar(progress))
    except KeyboardInterrupt:
        words = f"stopped. {journal.path} keeps the cases that are done; to go on: {command_line()}"
        console.print(words, highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def show_results(steps: Sequence[Step], records: Path) -> None:
    """Print the tables, write them beside the records, and say where they are.

    Raises:
        OptionError: there is nothing to show.
    """
    if not steps:
        raise OptionError("none of these cases and optimizers is in the records")
    console = Console()
    for mine in places(steps).values():
        console.print(describe(mine), style="bold", highlight=False, markup=False)
        for one in tables(mine):
            table = Table(*one.header, title=one.title)
            for row in one.rows:
                table.add_row(*row)
            console.print(table)
            for note in one.notes:
                console.print(note, highlight=False, markup=False)
    tell_written(console, write_page(steps, page_beside(records)))


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Names in a list as it was typed; None if there is no list."""
    if text is None:
        return None
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"{option} names nothing; got '{text}'. Leave it out for the usual ones")
    return names


def _known(text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = _names("--dtype", text) or ()
    if not set(names) <= set(known):
        raise OptionError(f"--dtype must be of {', '.join(known)}; got '{text}'")
    return names


def _momenta(text: str) -> tuple[float, ...]:
    try:
        found = tuple(sorted({float(word) for word in text.split(",")}))
    except ValueError:
        found = ()
    if not found or not all(0 <= one < 1 for one in found):
        raise OptionError(f"--momentum must be numbers from 0 to below 1, separated by commas; got '{text}'")
    return found
