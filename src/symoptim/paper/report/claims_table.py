"""Verdicts as Markdown and CSV."""

from collections.abc import Sequence

from symoptim.paper.report.judge import Judgment
from symoptim.support.files import csv_text


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
