"""``symoptim bench``: what a step costs on this machine, beside torch's optimizers and other packages'."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer import Argument, Option

from symoptim.bench.records import Journal, Step, read_steps
from symoptim.bench.sheets import describe, places, sheets
from symoptim.bench.written import only, require_room, write_results
from symoptim.cli import options
from symoptim.cli.report import tell_written
from symoptim.errors import OptionError
from symoptim.support.provenance import command_line

if TYPE_CHECKING:
    from symoptim.bench.run import Plan

Files = Annotated[list[Path] | None, Argument(metavar="FILE", help="Records, with --report.")]
Report = Annotated[bool, Option("--report", help="Measure nothing: tables and pictures of FILEs.")]
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
        help="Of sgd-fused (always there), sgd-foreach, adamw-fused, adamw-foreach, geoopt, sgdp, "
        "sgdp-collection, oblique, sm-fused, sm-reference, sm-compiled, un-fused, un-reference, un-compiled, "
        "full-fused, full-reference.",
        show_default="all that are installed and need no compiler",
    ),
]
Momenta = Annotated[str, Option(help="Momentum factors, separated by commas.")]
Precision = Annotated[str, Option(help="Of float32, bfloat16.")]
Threads = Annotated[int, Option(help="Threads on a CPU: process time with one, wall time with more.", min=1)]
Turns = Annotated[int, Option(help="Turns of everybody in every case, at most.", min=1)]
Seconds = Annotated[
    float,
    Option(help="For all turns of a case: everybody has a share, and three turns at least.", min=0),
]
WithCompiled = Annotated[bool, Option("--compile", help="Let torch.compile compete too; it takes its time.")]
Out = Annotated[
    Path | None,
    Option(
        help="File of the records, which are added to it; tables and pictures go beside it.",
        show_default="results/bench-DEVICE.jsonl",
    ),
]


def bench(
    files: Files = None,
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
    """Time a step of our optimizers beside torch's and other packages', each checked before it is timed.

    Everything goes to a file of JSON lines as it is measured. Stop at any moment and start again: what the
    file has from this machine with this code is not measured again.
    """
    if report or files:
        if not (report and files):
            raise OptionError(
                "--report and FILEs go together: symoptim bench --report results/bench-cpu.jsonl"
            )
        chosen = only(read_steps(files), _names("--cases", cases), _names("--optimizers", optimizers))
        show_results(chosen, (out or files[0]).with_suffix(""))
        return
    import torch  # it takes a second, which a report need not wait for

    from symoptim.bench.cases import CASES, case_named
    from symoptim.bench.rivals import contestants_named
    from symoptim.bench.run import DTYPES, Plan, out_of_place, session_of
    from symoptim.bench.turns import Pace
    from symoptim.support.devices import device_named

    where = device_named(device)
    usual = ("resnet50", "segnet", "tiny") if where.type == "cpu" else tuple(CASES)
    chosen_cases, chosen = _names("--cases", cases) or usual, _names("--optimizers", optimizers)
    plan = Plan(
        cases=tuple(map(case_named, chosen_cases)),
        contestants=contestants_named(chosen, compiled=compiled),
        momenta=_momenta(momentum),
        dtypes=_known(dtype, tuple(DTYPES)),
        device=where,
        pace=Pace(turns=turns, seconds=seconds),
    )
    torch.set_num_threads(threads)
    path = out or Path("results") / f"bench-{plan.device.type}.jsonl"
    require_room(path)
    before = path.stat().st_size if path.exists() else 0
    measure_all(plan, Journal(path, session_of(plan.device)))
    notes = [f"{title}: {reason}" for title, reason in out_of_place(plan).items() if chosen]
    if path.stat().st_size == before:
        notes.append(
            f"nothing was left to measure: {path} has all that can be measured here. "
            "For more turns choose another --out"
        )
    show_results(only(read_steps([path]), chosen_cases, chosen), path.with_suffix(""))
    for note in notes:
        Console(stderr=True).print(note, highlight=False, markup=False, soft_wrap=True)


class Bar:
    """Shows how far the work has come, and the time left."""

    def __init__(self, progress: Progress) -> None:
        """Show it there."""
        self.progress, self.total, self.told = progress, 0.0, ""
        self.task = progress.add_task("preparing", total=None)

    def expect(self, amount: float) -> None:
        """So much more is to do."""
        self.total += amount
        self.progress.update(self.task, total=self.total)

    def done(self, amount: float, words: str) -> None:
        """So much of it is done; where no bar can be seen, a line for every case."""
        self.progress.update(self.task, advance=amount, description=words)
        case, _, _ = words.partition(":")
        if not self.progress.console.is_terminal and case != self.told:
            self.progress.console.print(case, highlight=False, markup=False)
            self.told = case


def measure_all(plan: "Plan", journal: Journal) -> None:
    """Measure what the journal does not have, with a progress bar.

    Args:
        plan: what to measure.
        journal: where it goes.

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


def show_results(steps: Sequence[Step], path: Path) -> None:
    """Print the tables, write them and the pictures, and say where they are.

    Args:
        steps: what was measured.
        path: of the files, without ending.

    Raises:
        OptionError: there is nothing to show.
    """
    if not steps:
        raise OptionError("none of these cases and optimizers is in the records")
    console = Console()
    for mine in places(steps).values():
        console.print(describe(mine), style="bold", highlight=False, markup=False)
        for sheet in sheets(mine):
            table = Table(*sheet.header, title=sheet.title)
            for row in sheet.rows:
                table.add_row(*row)
            console.print(table)
            for note in sheet.notes:
                console.print(note, highlight=False, markup=False)
    tell_written(console, write_results(steps, path))


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Names in a list one has typed; None if there is no list."""
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
