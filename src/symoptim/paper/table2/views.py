"""The page in sentences: what was done, what came out, what is missing. No HTML is here."""

from collections import Counter
from collections.abc import Sequence

from symoptim.paper.table2.cells import ARCHITECTURES, SCHEDULES, Cell, rows_of
from symoptim.paper.table2.claims import NotTested
from symoptim.paper.table2.judge import Judgment
from symoptim.paper.table2.summary import Summary

DATA_WORDS = {"digits": "scikit-learn's 1,797 digits of 8x8 pixels", "fashion-mnist": "Fashion-MNIST"}


def sentences(summary: Summary, judgments: Sequence[Judgment]) -> list[str]:
    """The page in three sentences: what was done, how it compares, which claims held."""
    asked = summary.experiment.configuration
    protocol = asked["protocol"]
    ended = sum(run.has_ended for run in summary.runs)
    size = "the paper's protocol in full" if asked["profile"] == "paper" else "the paper's rules, in small"
    count = Counter(judgment.verdict for judgment in judgments)
    untested = sum(isinstance(judgment.claim.evidence, NotTested) for judgment in judgments)
    return [
        f"{ended} networks were trained on {data_name(asked['data'])} by {size}: {protocol['repeats']} "
        f"repeats of {len(summary.cells)} combinations of network, schedule and update, seed "
        f"{protocol['seed']}, on {summary.experiment.device}, in {duration(summary.experiment.seconds)}.",
        *_comparison(summary),
        f"Of the paper's {len(judgments)} claims {count['held']} held, {count['not held']} did not, and "
        f"{count['undecided']} stay undecided, {untested} of which were not tested.",
    ]


def _comparison(summary: Summary) -> list[str]:
    """A sentence on the errors, if there are any."""
    trained = [cell for cell in summary.cells if cell.errors]
    if not trained:
        return []
    lowest = min(trained, key=lambda cell: cell.mean)
    said = f"The lowest mean test error is {lowest.mean:.4f}, of {cell_name(lowest)}"
    if summary.experiment.configuration["profile"] != "paper":
        return [f"{said}; with fewer images and epochs than the paper had, errors do not compare with its."]
    compared = [(cell, cell.paper) for cell in trained if cell.paper and len(cell.errors) > 1]
    if not compared:
        return [f"{said}."]
    above = sum(cell.mean > paper.mean + paper.deviation for cell, paper in compared)
    below = sum(cell.mean < paper.mean - paper.deviation for cell, paper in compared)
    narrow = sum(cell.deviation < paper.deviation for cell, paper in compared)
    return [
        f"{said}; of {len(compared)} means {len(compared) - above - below} are within the paper's mean ± one "
        f"standard deviation, {below} below and {above} above, and {narrow} of the deviations are smaller "
        "than the paper's."
    ]


def cell_name(cell: Cell) -> str:
    """A cell in words."""
    key = cell.key
    return (
        f"{key.depth}-layer {ARCHITECTURES[key.architecture]} with {cell.title} and {SCHEDULES[key.schedule]}"
    )


def data_name(data: str) -> str:
    """A data set as one writes it."""
    return {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "8x8 digits"}.get(data, data)


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(89.6), duration(5400.0)
    ('90 s', '1 h 30 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def missing(summary: Summary) -> list[str]:
    """What a reader has to know is not there."""
    remarks: list[str] = []
    lacking = sum(cell.missing for cell in summary.cells)
    if lacking:
        wanted = lacking + sum(len(cell.errors) + cell.diverged for cell in summary.cells)
        remarks.append(f"{lacking} of {wanted} full runs have not ended: run the same command to go on.")
    diverged = sum(cell.diverged for cell in summary.cells)
    if diverged:
        remarks.append(f"{diverged} full run(s) diverged; they are counted, and left out of all means.")
    data = summary.experiment.configuration["data"]
    if data != "mnist":
        remarks.append(f"The images are {DATA_WORDS.get(data, data)}, not the paper's MNIST.")
    if summary.experiment.configuration["protocol"]["repeats"] == 1:
        remarks.append("With one repeat there are no deviations, and no claim about errors can be judged.")
    return remarks


def best_of_rows(cells: Sequence[Cell]) -> set[Cell]:
    """The cell with the lowest mean of every depth and schedule."""
    rows = rows_of([cell for cell in cells if cell.errors])
    return {min(row, key=lambda cell: cell.mean) for row in rows.values()}
