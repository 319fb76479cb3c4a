"""Verdicts on the paper's claims: held, not held, undecided, each with its reasons in numbers.

All comparisons of all claims are one family, corrected by Holm's method at 5 %. A comparison *favors* its
claim if its corrected p is below 5 % in the claimed direction, *contradicts* it if in the other, and is open
otherwise. The repeats of a cell are its sample; those of two cells share seeds, which makes Welch's test a
little too careful. A claim is held if all its comparisons favor it, not held if any contradicts it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from symoptim.paper.records.runs import RecordedRun
from symoptim.paper.report.statistics import (
    Difference,
    compare_means,
    compare_spreads,
    compare_with_margin,
    holm,
)
from symoptim.paper.table2.claims import MARGIN, UPDATES, Claim, Comparison, EndsBy, NotTested, describe
from symoptim.paper.table2.published import Key
from symoptim.support.files import csv_text

ALPHA = 0.05
Samples = Mapping[Key, Sequence[float]]
Verdict = Literal["held", "not held", "undecided"]
Finding = Literal["favors", "contradicts", "open", "missing"]


class Judged(NamedTuple):
    """A comparison with what was found; ``difference`` is None where runs are missing."""

    comparison: Comparison
    difference: Difference | None
    p: float
    """Corrected for the whole family."""
    finding: Finding


class Judgment(NamedTuple):
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict
    why: str
    effect: str
    comparisons: tuple[Judged, ...]


def judge(claims: Sequence[Claim], samples: Samples, runs: Sequence[RecordedRun]) -> list[Judgment]:
    """Judge all claims together, by the test errors of every cell, and by how the full runs ended."""
    comparisons = [c for claim in claims if isinstance(claim.evidence, tuple) for c in claim.evidence]
    measured = {c: m for c in dict.fromkeys(comparisons) if (m := _measure(c, samples))}
    corrected = holm({comparison: m.difference.p for comparison, m in measured.items()})
    judged = {c: _judged(c, measured.get(c), corrected.get(c, math.nan)) for c in comparisons}
    return [_judgment(claim, judged, runs) for claim in claims]


class Measured(NamedTuple):
    """A difference lower - higher, and whether it lies where the claim has it."""

    difference: Difference
    favors: bool


def _measure(comparison: Comparison, samples: Samples) -> Measured | None:
    """Test a comparison; None if either cell has too few runs for it."""
    first, second = samples.get(comparison.lower, ()), samples.get(comparison.higher, ())
    # Of two values both are equally far from their median, and of three one is not far at all.
    needed = 4 if comparison.kind == "spread" else 2
    if len(first) < needed or len(second) < needed:
        return None
    if comparison.kind == "close":
        return Measured(*compare_with_margin(first, second, MARGIN))
    difference = (compare_spreads if comparison.kind == "spread" else compare_means)(first, second)
    return Measured(difference, difference.value < 0)


def _judged(comparison: Comparison, measured: Measured | None, p: float) -> Judged:
    if measured is None:
        return Judged(comparison, None, p, "missing")
    decided: Finding = "favors" if measured.favors else "contradicts"
    return Judged(comparison, measured.difference, p, decided if p < ALPHA else "open")


def _judgment(claim: Claim, judged: Mapping[Comparison, Judged], runs: Sequence[RecordedRun]) -> Judgment:
    match claim.evidence:
        case NotTested(reason=reason):
            return Judgment(claim, "undecided", f"Not tested here: {reason}.", "", ())
        case EndsBy() as rule:
            return _ends_by(claim, rule, runs)
        case comparisons:
            mine = tuple(judged[comparison] for comparison in comparisons)
            return Judgment(claim, *_verdict(mine), effect=_effect(mine), comparisons=mine)


def _verdict(judged: Sequence[Judged]) -> tuple[Verdict, str]:
    """Verdict of a claim, and the sentence of why."""
    found = {finding: [j for j in judged if j.finding == finding] for finding in get_args(Finding)}
    known = len(judged) - len(found["missing"])
    if known == 0:
        return "undecided", "The records lack the runs it is about."
    parts = [f"{len(found['favors'])} of {known} comparisons favor it"]
    if found["contradicts"]:
        worst = max(found["contradicts"], key=lambda j: abs(j.difference.value) if j.difference else 0)
        size = f"{worst.difference.value:+.4f}" if worst.difference else ""
        parts.append(
            f"{len(found['contradicts'])} against (claimed {describe(worst.comparison)}, found {size})"
        )
    if found["open"]:
        parts.append(f"{len(found['open'])} not significant")
    if found["missing"]:
        parts.append(f"{len(found['missing'])} lack runs")
    why = ", ".join(parts) + "."
    if found["contradicts"]:
        return "not held", why
    return ("held" if len(found["favors"]) == len(judged) else "undecided"), why


def _effect(judged: Sequence[Judged]) -> str:
    """Range of the differences in means, and of the ratios of deviations."""
    words: list[str] = []
    means = [j.difference for j in judged if j.difference and j.comparison.kind != "spread"]
    if means:
        errors, effects = _range([d.value for d in means], "+.4f"), _range([d.effect for d in means], "+.1f")
        words.append(f"error {errors}, d {effects}")
    ratios = [j.difference.effect for j in judged if j.difference and j.comparison.kind == "spread"]
    if ratios:
        words.append(f"deviation times {_range(ratios, '.1f')}")
    return "; ".join(words)


def _range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _ends_by(claim: Claim, rule: EndsBy, runs: Sequence[RecordedRun]) -> Judgment:
    """Judge by the runs the paper had; one that trains on beyond the epoch is enough to contradict."""
    mine = [
        r for r in runs if r.labels["schedule"] == rule.schedule and r.labels["update"] in UPDATES and r.curve
    ]
    lengths = [len(run.curve) for run in mine]
    longest = max((run.configuration["stopping"]["maximum"] for run in mine), default=0)
    within = sum(length <= rule.epoch for length in lengths)
    if not mine:
        verdict, why = "undecided", "The records lack the runs it is about."
    elif longest <= rule.epoch:
        verdict, why = "undecided", f"No run was allowed to go beyond epoch {longest}."
    elif within < len(mine):
        verdict = "not held"
        why = f"{within} of {len(mine)} runs ended by epoch {rule.epoch}, the last at epoch {max(lengths)}."
    elif not all(run.has_ended for run in mine):
        verdict, why = "undecided", "Some of the runs are still under way."
    else:
        verdict, why = "held", f"All {len(mine)} runs ended by epoch {rule.epoch}."
    effect = f"mean last epoch {sum(lengths) / len(lengths):.1f}" if lengths else ""
    return Judgment(claim, verdict, why, effect, ())


def as_markdown(judgments: Sequence[Judgment]) -> str:
    """One line per claim."""
    text = ["| | claim of the paper | verdict | why |", "|---|---|---|---|"]
    for judgment in judgments:
        claim = judgment.claim
        text.append(f"| {claim.number} | {claim.text} | **{judgment.verdict}** | {judgment.why} |")
    return "\n".join(text) + "\n"


def as_csv(judgments: Sequence[Judgment]) -> str:
    """One line per claim, with the effect sizes."""
    return csv_text(
        ["number", "claim", "verdict", "why", "effect"],
        ([j.claim.number, j.claim.text, j.verdict, j.why, j.effect] for j in judgments),
    )
