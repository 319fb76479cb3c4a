"""Results as tables on the terminal."""

from rich.table import Table
from rich.text import Text

from symoptim.report.summary import Summary
from symoptim.report.table2 import ARCHITECTURES, SCHEDULES, headings, lines


def table2_table(summary: Summary) -> Table:
    """Table 2, the paper's numbers dimmed below ours."""
    asked = summary.experiment.configuration
    repeats = asked["protocol"]["repeats"]
    title = f"Test error on {asked['data']}, {repeats} repeats, profile {asked['profile']}"
    # Fewer images and epochs than the paper had: say so, or readers will compare.
    quick = asked["profile"] == "quick"
    caption = "a smaller experiment than the paper's: only --profile paper compares" if quick else None
    table = Table("", *headings(summary.cells), title=title, caption=caption)
    for line in lines(summary.cells):
        table.add_row(line.title, *line.texts, style="dim" if line.is_paper else None)
    return table


def trajectories_table(summary: Summary) -> Table:
    """Mean test error and number of running runs, panel by panel, at some of the epochs."""
    longest = max((len(panel.points) for panel in summary.panels), default=0)
    shown = [e for e in range(1, longest + 1) if e == 1 or e == longest or e % max(1, longest // 10) == 0]
    titles = summary.experiment.configuration["titles"]
    table = Table("epoch", title="Mean test error (runs still running)")
    for panel in summary.panels:
        network = f"{panel.depth}-layer {ARCHITECTURES[panel.architecture]}"
        table.add_column(f"{titles[panel.update]}\n{network}\n{SCHEDULES[panel.schedule]}")
    for epoch in shown:
        points = [panel.points[epoch - 1] if epoch <= len(panel.points) else None for panel in summary.panels]
        table.add_row(str(epoch), *(Text(f"{p.mean:.4f} ({p.running})" if p else "-") for p in points))
    return table
