"""The report on Table 2: a page with everything the records say, tables as Markdown and CSV."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from symoptim.errors import RecordsError
from symoptim.paper.invariance.pairs import from_csv
from symoptim.paper.invariance.report import draw_pairs
from symoptim.paper.report.html import PAGE, Facts, Figure, Report, duration, render_page
from symoptim.paper.report.provenance import provenance_list, provenance_with_data
from symoptim.paper.report.statistics import mean_interval
from symoptim.paper.table2 import cells, judge, trajectories
from symoptim.paper.table2.cells import ARCHITECTURES, SCHEDULES, Cell, headings, pair_text, rows_of
from symoptim.paper.table2.claims import MARGIN, Claim, Comparison, NotTested, describe
from symoptim.paper.table2.figures import draw_architectures, draw_trajectories
from symoptim.paper.table2.judge import Judged, Judgment
from symoptim.paper.table2.published import TABLE2
from symoptim.paper.table2.summary import Summary, summarize
from symoptim.paper.updates import info
from symoptim.support.files import write_files
from symoptim.support.plotting import inline_svg

TITLE = "Symmetry-invariant optimization in deep networks: the MNIST experiments, reproduced"
DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "scikit-learn's 8x8 digits"}
MARKS = {"held": "✓", "not held": "✗", "undecided": "?"}
INVARIANCE = "invariance.csv"
SMALLER = "A smaller experiment than the paper's: only the profile paper compares.\n\n"


def write(folder: Path, records: Path) -> Report:
    """Write the page, its figures, Markdown and CSV."""
    summary = summarize(records)
    texts = {
        PAGE: render(summary, folder),
        "table2.md": cells.as_markdown(summary.cells) + "\n" + provenance(summary),
        "table2.csv": cells.as_csv(summary.cells),
        "trajectories.csv": trajectories.as_csv(summary.panels),
        "claims.md": judge.as_markdown(summary.judgments),
        "claims.csv": judge.as_csv(summary.judgments),
    }
    return Report(summary.experiment.name, summary, write_files(folder, texts))


def provenance(summary: Summary) -> str:
    """What the numbers are and where they come from, as Markdown."""
    config, protocol = summary.experiment.configuration, summary.protocol
    smaller = SMALLER if config["profile"] == "quick" else ""
    return (
        f"Test error, mean ± standard deviation (n - 1) over {protocol['repeats']} repeats of learning-rate "
        f"selection and full run, seed {protocol['seed']}; {config['data']}, profile {config['profile']}. "
        "Runs that diverged (no finite loss, or more than half of the validation images wrong at the end) "
        f"are left out.\n\n{smaller}{provenance_list(summary.experiment)}"
    )


def render(summary: Summary, folder: Path) -> str:
    """The page as HTML; its figures are drawn into the folder on the way."""
    family = {j.comparison for judgment in summary.judgments for j in judgment.comparisons if j.difference}
    return render_page(
        "table2/report.html.j2",
        title=TITLE,
        facts=facts(summary),
        remarks=remarks(summary),
        headings=headings(summary.cells),
        has_paper=any(cell.paper for cell in summary.cells),
        rows=list(_rows(summary)),
        judgments=summary.judgments,
        marks=MARKS,
        papers_own={j.claim.number: papers_own(j.claim) for j in summary.judgments},
        margin=MARGIN,
        family=len(family),
        comparisons=[_comparison(j, judged) for j in summary.judgments for judged in j.comparisons],
        figures=_figures(summary, folder),
        rates=[f"{rate:g}" for rate in summary.rates],
        rate_rows=summary.chosen_rates(),
        ending_rows=summary.endings(),
        protocol=protocol_facts(summary),
        repeats=summary.protocol["repeats"],
        provenance=provenance_with_data(summary.experiment),
    )


def facts(summary: Summary) -> Facts:
    """What was done, how it compares, which claims held."""
    config, experiment = summary.experiment.configuration, summary.experiment
    ended = sum(run.has_ended for run in summary.runs)
    verdicts = Counter(judgment.verdict for judgment in summary.judgments)
    untested = sum(isinstance(judgment.claim.evidence, NotTested) for judgment in summary.judgments)
    size = "the paper's in full" if config["profile"] == "paper" else "the paper's rules in small"
    rows: Facts = [
        ("protocol", f"{size}; {summary.protocol['repeats']} repeats of {len(summary.cells)} cells"),
        ("data", DATA.get(config["data"]) or config["data"]),
        ("trained", f"{ended} networks on {experiment.device} in {duration(experiment.seconds)}"),
    ]
    trained = [cell for cell in summary.cells if cell.errors]
    if trained:
        best = min(trained, key=lambda cell: cell.mean)
        rows.append(("lowest mean error", f"{pair_text(best.mean, best.deviation)}: {cell_name(best)}"))
    compared = [(cell, cell.paper) for cell in trained if cell.paper and len(cell.errors) > 1]
    if compared and config["profile"] == "paper":
        above = sum(cell.mean > paper.mean + paper.deviation for cell, paper in compared)
        below = sum(cell.mean < paper.mean - paper.deviation for cell, paper in compared)
        narrow = sum(cell.deviation < paper.deviation for cell, paper in compared)
        within = f"{len(compared) - above - below} of {len(compared)} means within one standard deviation"
        rows.append(
            ("beside the paper's", f"{within}, {below} below, {above} above; {narrow} deviations smaller")
        )
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in MARKS)
    return [*rows, ("the paper's claims", f"{counts} ({untested} not tested)")]


def cell_name(cell: Cell) -> str:
    """A cell in words."""
    key = cell.key
    return f"{key.depth}-layer {ARCHITECTURES[key.architecture]}, {cell.title}, {SCHEDULES[key.schedule]}"


def remarks(summary: Summary) -> list[str]:
    """What a reader has to know is missing, or different."""
    missing = sum(cell.missing for cell in summary.cells)
    diverged = sum(cell.diverged for cell in summary.cells)
    config, repeats = summary.experiment.configuration, summary.protocol["repeats"]
    wanted = repeats * len(summary.cells)
    conditions = {
        f"{missing} of {wanted} full runs have not ended: run the same command to go on.": missing,
        f"{diverged} full run(s) diverged; they are counted, and left out of all means.": diverged,
        "These are not the paper's images: errors do not compare.": config["data"] != "mnist",
        "Fewer images and epochs than the paper had: errors do not compare.": config["profile"] != "paper",
        "With one repeat there are no deviations, and no claim about errors can be judged.": repeats == 1,
    }
    return [remark for remark, holds in conditions.items() if holds]


def protocol_facts(summary: Summary) -> Facts:
    """How it was done, by name."""
    config = summary.protocol
    stopping, bold = config["stopping"], config["bold"]
    others = [info(update) for update in config["updates"] if info(update).note]
    return [
        (
            "rates",
            f"{', '.join(f'{rate:g}' for rate in config['rates'])}, for the loss summed over a batch",
        ),
        (
            "selection",
            f"for every repeat: {config['selection_epochs']} epochs on {config['selection_train']} images, "
            f"lowest error on {config['selection_validation']} others, the larger rate on a tie",
        ),
        (
            "full runs",
            f"{config['train']} random training images, {config['validation']} others for validation, "
            f"batches of {config['batch']}; split, start and order are fresh for every repeat, and shared "
            "by all updates",
        ),
        (
            "exp. decay",
            f"rate times {config['exponential']['decay']} an epoch, {stopping['maximum']} epochs",
        ),
        (
            "bold driver",
            f"rate times {bold['grow']} after an epoch whose loss is not higher, else times "
            f"{bold['shrink']}; {stopping['maximum']} epochs at most, fewer if after epoch "
            f"{stopping['minimum']} the training error is below {stopping['train_error']:g}, or the "
            f"validation error above that of {stopping['lookback']} epochs earlier, or changed by less than "
            f"{stopping['change']:g}",
        ),
        (
            "decided here",
            "pixels are divided by 255; the bold driver's factors; "
            f"{config['classifier']} of the classifier start with unit norm",
        ),
        *((f"{other.title} (not in the paper)", other.note) for other in others),
    ]


def papers_own(claim: Claim) -> str:
    """How many comparisons of a claim the paper's own printed numbers agree with."""
    if not isinstance(claim.evidence, tuple):
        return ""
    agree = sum(_printed_agrees(comparison) for comparison in claim.evidence)
    return f"{agree} of {len(claim.evidence)} agree"


def _printed_agrees(comparison: Comparison) -> bool:
    lower, higher = TABLE2[comparison.lower], TABLE2[comparison.higher]
    match comparison.kind:
        case "mean":
            return lower.mean < higher.mean
        case "spread":
            return lower.deviation < higher.deviation
        case "close":
            return abs(lower.mean - higher.mean) < MARGIN


def _rows(summary: Summary) -> Iterator[Mapping[str, Any]]:
    """Table 2 row by row."""
    for (depth, schedule), row in rows_of(summary.cells).items():
        best = min((cell for cell in row if cell.errors), key=lambda cell: cell.mean, default=None)
        shown = [
            {
                "text": pair_text(cell.mean, cell.deviation),
                "mean": cell.mean,
                "best": cell is best,
                # Of two runs the interval is too wide to tell anything.
                "interval": _interval(*mean_interval(cell.errors)) if len(cell.errors) > 2 else "",
                "count": f"n = {len(cell.errors)}" + (f", {cell.remarks}" if cell.remarks else ""),
                "paper": pair_text(*cell.paper) if cell.paper else "",
            }
            for cell in row
        ]
        yield {"depth": depth, "schedule": SCHEDULES[schedule], "cells": shown}


def _interval(low: float, high: float, sign: str = "") -> str:
    if math.isnan(low):
        return ""
    return " to ".join(f"{end:{sign}.4f}".replace("0.", ".", 1) for end in (low, high))


def _comparison(judgment: Judgment, judged: Judged) -> Mapping[str, Any]:
    """A row of the table of all comparisons."""
    row = {"claim": judgment.claim.number, "words": describe(judged.comparison), "finding": judged.finding}
    difference = judged.difference
    if difference is None:
        return {**row, "difference": "", "interval": "", "effect": "", "p": ""}
    unit = "times" if judged.comparison.kind == "spread" else "d"
    return {
        **row,
        "difference": f"{difference.value:+.4f}",
        "interval": _interval(difference.low, difference.high, "+"),
        "effect": f"{difference.effect:.1f} {unit}",
        "p": f"{judged.p:.2g}",
    }


def _figures(summary: Summary, folder: Path) -> list[Figure]:
    _, curves = draw_trajectories(summary.panels, summary.titles, folder / "trajectories")
    inputs = 64 if summary.experiment.configuration["data"] == "digits" else 784
    _, networks = draw_architectures(folder / "architectures", inputs=inputs)
    return [
        Figure(
            "trajectories",
            "Trajectories",
            inline_svg(curves, "Test error over the epochs"),
            "Test error over the epochs. Dotted: mean over the runs that got that far; band: one standard "
            "deviation; gray: how many runs that is.",
        ),
        Figure(
            "architectures",
            "The networks and their symmetries",
            inline_svg(networks, "Arch1 and Arch2 as boxes, with their scales"),
            "The scales marked on the filled weights can be any positive numbers: the network computes the "
            "same function. SM trains alike from all of them, UN from all of Arch2's, plain SGD from none.",
        ),
        _invariance(folder),
    ]


def _invariance(folder: Path) -> Figure:
    title = "Two scalings of one network"
    # Beside the records, or where the command puts it by default.
    paths = (folder / INVARIANCE, folder.parent / "invariance" / INVARIANCE)
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        caption = f"Not there: symoptim reproduce invariance --out {folder}, then symoptim report {folder}."
        return Figure("invariance", title, "", caption)
    pairs = from_csv(path.read_text(encoding="utf-8"))
    if not pairs:
        raise RecordsError(f"{path} is empty: remove it, or run symoptim reproduce invariance again")
    _, drawing = draw_pairs(pairs, folder / "invariance")
    return Figure(
        "invariance",
        title,
        inline_svg(drawing, "Pairs of loss curves"),
        "Training loss from two scalings of one network (float64, one seed), and the largest relative "
        "difference of the two. UN has no panel for Arch1: there it fixes one scaling instead of being "
        "invariant to all.",
    )
