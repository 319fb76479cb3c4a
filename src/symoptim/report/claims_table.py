"""Verdicts as Markdown and CSV."""

import csv
import io
from collections.abc import Sequence

from symoptim.report.judge import Judgment


def as_markdown(judgments: Sequence[Judgment]) -> str:
    """One line per claim."""
    text = ["| | claim of the paper | verdict | why |", "|---|---|---|---|"]
    for judgment in judgments:
        claim = judgment.claim
        text.append(f"| {claim.number} | {claim.text} | **{judgment.verdict}** | {judgment.why} |")
    return "\n".join(text) + "\n"


def as_csv(judgments: Sequence[Judgment]) -> str:
    """One line per claim, with the effect sizes."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["number", "claim", "verdict", "why", "effect"])
    writer.writerows([j.claim.number, j.claim.text, j.verdict, j.why, j.effect] for j in judgments)
    return table.getvalue()
