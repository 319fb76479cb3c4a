"""Verdicts on the paper's claims: held, not held, undecided, each with its reasons in numbers.

All comparisons of all claims are one family, corrected by Holm's method at 5 %. A comparison *favors* its
claim if its corrected p is below 5 % in the claimed direction, *contradicts* it if in the other, and is open
otherwise. A claim is held if all its comparisons favor it, not held if any contradicts it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from symoptim.records.reading import RecordedRun
from symoptim.report.claims import (
    MARGIN,
    Claim,
    CloseMeans,
    Comparison,
    EndsBy,
    LowerMean,
    LowerSpread,
    NotTested,
    describe,
)
from symoptim.report.paper import Key
from symoptim.report.statistics import (
    Difference,
    compare_means,
    compare_spreads,
    compare_with_margin,
    holm,
)

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
    """Judge all claims together.

    Args:
        claims: what to judge.
        samples: test errors of every cell, runs that diverged left out.
        runs: the full runs, for claims about how they ended.

    Returns:
        A judgment for every claim, in their order.
    """
    family: dict[Comparison, Difference] = {}
    for claim in claims:
        if isinstance(claim.evidence, tuple):
            for comparison in claim.evidence:
                difference = _measure(comparison, samples)
                if difference is not None:
                    family[comparison] = difference
    corrected = holm({comparison: difference.p for comparison, difference in family.items()})
    return [_judgment(claim, family, corrected, runs) for claim in claims]


def _measure(comparison: Comparison, samples: Samples) -> Difference | None:
    """The difference lower - higher; None if either cell has fewer than two runs."""
    first, second = samples.get(comparison.lower, ()), samples.get(comparison.higher, ())
    if len(first) < 2 or len(second) < 2:
        return None
    match comparison:
        case LowerMean():
            return compare_means(first, second)
        case LowerSpread():
            return compare_spreads(first, second)
        case CloseMeans():
            return compare_with_margin(first, second, MARGIN)


def _judgment(
    claim: Claim,
    family: Mapping[Comparison, Difference],
    corrected: Mapping[Comparison, float],
    runs: Sequence[RecordedRun],
) -> Judgment:
    match claim.evidence:
        case NotTested(reason=reason):
            return Judgment(claim, "undecided", f"Not tested here: {reason}.", "", ())
        case EndsBy() as rule:
            return _ends_by(claim, rule, runs)
        case comparisons:
            judged = tuple(
                Judged(c, family.get(c), corrected.get(c, math.nan), _finding(c, family.get(c), corrected))
                for c in comparisons
            )
            return Judgment(claim, *_verdict(judged), effect=_effect(judged), comparisons=judged)


def _finding(
    comparison: Comparison, difference: Difference | None, corrected: Mapping[Comparison, float]
) -> Finding:
    if difference is None:
        return "missing"
    if isinstance(comparison, CloseMeans):
        if corrected[comparison] < ALPHA:
            return "favors"
        outside = difference.low > MARGIN or difference.high < -MARGIN
        return "contradicts" if outside else "open"
    if corrected[comparison] >= ALPHA:
        return "open"
    return "favors" if difference.value < 0 else "contradicts"


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
    means = [j.difference for j in judged if j.difference and not isinstance(j.comparison, LowerSpread)]
    if means:
        errors, effects = _range([d.value for d in means], "+.4f"), _range([d.effect for d in means], "+.1f")
        words.append(f"error {errors}, d {effects}")
    ratios = [j.difference.effect for j in judged if j.difference and isinstance(j.comparison, LowerSpread)]
    if ratios:
        words.append(f"deviation times {_range(ratios, '.1f')}")
    return "; ".join(words)


def _range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _ends_by(claim: Claim, rule: EndsBy, runs: Sequence[RecordedRun]) -> Judgment:
    ended = [r for r in runs if r.labels["schedule"] == rule.schedule and r.has_ended and r.curve]
    if not ended:
        return Judgment(claim, "undecided", "The records lack the runs it is about.", "", ())
    longest = max(run.configuration["stopping"]["maximum"] for run in ended)
    if longest <= rule.epoch:
        why = f"No run was allowed to go beyond epoch {longest}."
        return Judgment(claim, "undecided", why, "", ())
    lengths = [len(run.curve) for run in ended]
    within = sum(length <= rule.epoch for length in lengths)
    why = f"{within} of {len(ended)} runs ended by epoch {rule.epoch}, the last at epoch {max(lengths)}."
    verdict: Verdict = "held" if within == len(ended) else "not held"
    return Judgment(claim, verdict, why, f"mean last epoch {sum(lengths) / len(lengths):.1f}", ())
