"""Results as tables on the terminal: updates are rows, so that extra ones fit."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from symoptim.paper.invariance.report import Summary as InvarianceSummary
from symoptim.paper.report.html import Facts, Report
from symoptim.paper.segnet import report as segnet
from symoptim.paper.segnet.comparison import ScoreComparison, compare
from symoptim.paper.segnet.summary import SceneSummary
from symoptim.paper.segnet.tables import rate_rows, score_lines, searched_rates
from symoptim.paper.table2.cells import ARCHITECTURES, SCHEDULES, headings, lines
from symoptim.paper.table2.judge import Judgment
from symoptim.paper.table2.summary import Summary
from symoptim.paper.updates import info

EPOCHS_SHOWN = 6


def tables_of(report: Report, *, trajectories: bool = False) -> Iterator[RenderableType]:
    """What is printed of a report."""
    match report.summary:
        case Summary() as summary:
            yield trajectories_table(summary) if trajectories else table2_table(summary)
            quick = summary.experiment.configuration["profile"] == "quick"
            yield verdicts_table(summary.judgments, quick=quick)
        case SceneSummary() as summary:
            yield scores_table(summary)
            comparison = compare(summary)
            if comparison:
                yield comparison_table(comparison)
            if summary.search:
                yield rates_table(summary)
            yield from _text(segnet.facts(summary), segnet.remarks(summary))
        case InvarianceSummary() as summary:
            yield gaps_table(summary)
        case _:
            pass


def _text(facts: Facts, remarks: Iterable[str]) -> Iterator[Text]:
    yield from (Text(f"{name}: {value}") for name, value in facts)
    yield from map(Text, remarks)


def gaps_table(summary: InvarianceSummary) -> Table:
    """Relative difference of the losses, epoch by epoch."""
    table = Table("epoch", title="Relative difference of the loss from two scalings of one network")
    for pair in summary.pairs:
        table.add_column(f"{ARCHITECTURES[pair.architecture]}\n{info(pair.update).title}")
    gaps = [pair.gaps for pair in summary.pairs]
    for epoch, row in enumerate(zip(*gaps, strict=True), start=1):
        table.add_row(str(epoch), *(f"{gap:.1e}" for gap in row))
    return table


def table2_table(summary: Summary) -> Table:
    """Table 2, the paper's numbers below ours."""
    config = summary.experiment.configuration
    repeats = config["protocol"]["repeats"]
    title = f"Test error on {config['data']}, {repeats} repeat(s), profile {config['profile']}"
    smaller = "a smaller experiment than the paper's: only --profile paper compares"
    table = Table("", title=title, caption=smaller if config["profile"] == "quick" else None)
    ours = [line for line in lines(summary.cells) if not line.is_paper]
    papers = [line for line in lines(summary.cells) if line.is_paper]
    for line in ours:
        table.add_column(line.title.replace(", ", ",\n"))
    for index, heading in enumerate(headings(summary.cells)):
        table.add_row(heading, *(line.texts[index] for line in ours))
        if any(line.texts[index] for line in papers):
            table.add_row("  the paper", *(line.texts[index] for line in papers), style="dim")
    return table


def trajectories_table(summary: Summary) -> Table:
    """Mean test error and number of running runs, panel by panel, at some of the epochs."""
    longest = max((len(panel.points) for panel in summary.panels), default=0)
    shown = sorted({1 + round(k * (longest - 1) / (EPOCHS_SHOWN - 1)) for k in range(EPOCHS_SHOWN)})
    titles = summary.experiment.configuration["titles"]
    table = Table("epoch", *map(str, shown), title="Mean test error (runs that got that far)")
    network = ""
    for panel in summary.panels:
        schedule = SCHEDULES[panel.schedule]
        if network != (network := f"{panel.depth}-layer {ARCHITECTURES[panel.architecture]}, {schedule}"):
            table.add_section()
            table.add_row(Text(network, style="bold"))
        points = [panel.points[epoch - 1] if epoch <= len(panel.points) else None for epoch in shown]
        texts = (f"{point.mean:.4f} ({point.running})" if point else "-" for point in points)
        table.add_row(f"  {titles[panel.update]}", *texts)
    return table


STYLES = {"held": "green", "not held": "red", "undecided": "dim"}


def verdicts_table(judgments: Sequence[Judgment], *, quick: bool) -> Table:
    """The paper's claims and what became of them."""
    caption = "judged on a smaller experiment, with few repeats" if quick else None
    title = "The paper's claims, judged"
    table = Table("", "claim of the paper", "verdict", "why", title=title, caption=caption)
    for judgment in judgments:
        verdict = Text(judgment.verdict, style=STYLES[judgment.verdict])
        table.add_row(str(judgment.claim.number), judgment.claim.text, verdict, judgment.why)
    return table


def scores_table(summary: SceneSummary) -> Table:
    """Scores on the test set, ours and published ones."""
    config = summary.experiment.configuration
    title = f"Scores on the test set of {config['data']}, profile {config['profile']}"
    table = Table("", title=title)
    for name in ("global", "class", "mean IoU"):
        table.add_column(name, no_wrap=True)
    table.add_column("")
    for line in score_lines(summary):
        remark = line.remark if line.is_ours else f"published, {line.training}"
        table.add_row(line.system, *line.texts, remark, style="" if line.is_ours else "dim")
    return table


def comparison_table(found: ScoreComparison) -> Table:
    """The paper's updates against the best of the others."""
    table = Table(
        "", "mean IoU", "n", title=f"The paper's updates against the best other one: {found.finding}"
    )
    table.add_row(" and ".join(found.ours), f"{found.mean:.3f}", str(found.repeats))
    table.add_row(found.rival, f"{found.rival_mean:.3f}", str(found.rival_repeats))
    interval = f"95 % interval {found.low:+.3f} to {found.high:+.3f}"
    table.add_row("difference", f"{found.difference:+.3f}", f"{interval}, p = {found.p:.2g}")
    return table


def rates_table(summary: SceneSummary) -> Table:
    """Test score of the short runs: a row for every rate, for there are more of them than updates."""
    rows = rate_rows(summary)
    titles = (title.replace(", ", ",\n") for title, _, _ in rows)
    table = Table("rate", *titles, title="Mean IoU on the test set by learning rate (short runs)")
    for column, rate in enumerate(searched_rates(summary)):
        table.add_row(f"{rate:g}", *(texts[column] for _, texts, _ in rows))
    table.add_section()
    table.add_row("spread", *(spread for *_, spread in rows))
    return table
