"""The page: everything the records say, in one file that needs no network."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from symoptim.errors import RecordsError
from symoptim.paper.invariance.pairs import from_csv
from symoptim.paper.invariance.report import draw_pairs
from symoptim.paper.report.html import Figure, render_page
from symoptim.paper.report.statistics import mean_interval
from symoptim.paper.table2 import captions, tallies, views
from symoptim.paper.table2.cells import SCHEDULES, Cell, headings, pair_text, rows_of
from symoptim.paper.table2.claims import (
    CLAIMS,
    MARGIN,
    Claim,
    CloseMeans,
    Comparison,
    LowerMean,
    LowerSpread,
    describe,
)
from symoptim.paper.table2.figures import draw_architectures, draw_trajectories
from symoptim.paper.table2.judge import Judged, Judgment, judge
from symoptim.paper.table2.published import TABLE2
from symoptim.paper.table2.summary import Summary, provenance_facts
from symoptim.support.plotting import inline_svg

TITLE = "Symmetry-invariant optimization in deep networks: the MNIST experiments, reproduced"
MARKS = {"held": "✓", "not held": "✗", "undecided": "?"}
INVARIANCE = "invariance.csv"


def judge_summary(summary: Summary) -> list[Judgment]:
    """Verdicts on all claims."""
    return judge(CLAIMS, {cell.key: cell.errors for cell in summary.cells}, summary.runs)


def render(summary: Summary, judgments: Sequence[Judgment], folder: Path) -> str:
    """The page as HTML; its figures are drawn into the folder on the way.

    Args:
        summary: what the records say.
        judgments: verdicts on the claims.
        folder: of the results; a file of the invariance experiment there is shown too.

    Returns:
        The page.
    """
    asked = summary.experiment.configuration
    rates, rate_rows = tallies.chosen_rates(summary)
    best = views.best_of_rows(summary.cells)
    family = {j.comparison for judgment in judgments for j in judgment.comparisons if j.difference}
    return render_page(
        "table2/report.html.j2",
        title=TITLE,
        sentences=views.sentences(summary, judgments),
        remarks=views.missing(summary),
        headings=headings(summary.cells),
        has_paper=any(cell.paper for cell in summary.cells),
        rows=list(_rows(summary.cells, best)),
        judgments=judgments,
        marks=MARKS,
        papers_own={judgment.claim.number: papers_own(judgment.claim) for judgment in judgments},
        margin=MARGIN,
        family=len(family),
        comparisons=[_comparison(j, judged) for j in judgments for judged in j.comparisons],
        figures=_figures(summary, folder),
        rates=[f"{rate:g}" for rate in rates],
        rate_rows=rate_rows,
        ending_rows=tallies.endings(summary),
        protocol=captions.protocol_facts(summary),
        repeats=asked["protocol"]["repeats"],
        provenance=[
            *provenance_facts(summary.experiment),
            ("data", f"{asked['data']}, digest {asked['digest']}"),
        ],
    )


def papers_own(claim: Claim) -> str:
    """How many comparisons of a claim the paper's own printed numbers agree with."""
    if not isinstance(claim.evidence, tuple):
        return ""
    agree = sum(_printed_agrees(comparison) for comparison in claim.evidence)
    return f"{agree} of {len(claim.evidence)} agree"


def _printed_agrees(comparison: Comparison) -> bool:
    lower, higher = TABLE2[comparison.lower], TABLE2[comparison.higher]
    match comparison:
        case LowerMean():
            return lower.mean < higher.mean
        case LowerSpread():
            return lower.deviation < higher.deviation
        case CloseMeans():
            return abs(lower.mean - higher.mean) < MARGIN


def _rows(cells: Sequence[Cell], best: set[Cell]) -> Iterator[Mapping[str, Any]]:
    for (depth, schedule), row in rows_of(cells).items():
        shown = [
            {
                "text": pair_text(cell.mean, cell.deviation),
                "mean": cell.mean,
                "best": cell in best,
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
    words = {"claim": judgment.claim.number, "words": describe(judged.comparison)}
    words["finding"] = judged.finding
    difference = judged.difference
    if difference is None:
        return {**words, "difference": "", "interval": "", "effect": "", "p": ""}
    unit = "times" if isinstance(judged.comparison, LowerSpread) else "d"
    return {
        **words,
        "difference": f"{difference.value:+.4f}",
        "interval": _interval(difference.low, difference.high, "+"),
        "effect": f"{difference.effect:.1f} {unit}",
        "p": f"{judged.p:.2g}",
    }


def _figures(summary: Summary, folder: Path) -> list[Figure]:
    titles = summary.experiment.configuration["titles"]
    _, curves = draw_trajectories(summary.panels, titles, folder / "trajectories")
    inputs = 64 if summary.experiment.configuration["data"] == "digits" else 784
    _, networks = draw_architectures(folder / "architectures", inputs=inputs)
    return [
        Figure(
            "trajectories",
            "Trajectories",
            inline_svg(curves, "Test error over the epochs"),
            captions.trajectories_caption(summary.panels, summary.cells, titles),
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
    # Beside the records, or where the command puts it when it is not told.
    places = (folder / INVARIANCE, folder.parent / "invariance" / INVARIANCE)
    path = next((place for place in places if place.exists()), None)
    if path is None:
        caption = f"Not there: symoptim reproduce invariance --out {folder}, then symoptim report {folder}."
        return Figure("invariance", title, "", caption)
    pairs = from_csv(path.read_text(encoding="utf-8"))
    if not pairs:
        raise RecordsError(f"{path} is empty: remove it, or run symoptim reproduce invariance again")
    _, drawing = draw_pairs(pairs, folder / "invariance", caption=captions.INVARIANCE_WORDS)
    return Figure(
        "invariance", title, inline_svg(drawing, "Pairs of loss curves"), captions.invariance_caption(pairs)
    )
