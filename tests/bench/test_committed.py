"""What the documentation shows is what the committed records say."""

from pathlib import Path

from symoptim.bench.records import read_steps
from symoptim.bench.written import results_text

ROOT = Path(__file__).parent.parent.parent
RECORDS = ROOT / "benchmarks" / "results"


def test_the_tables_of_the_documentation_are_those_of_the_records() -> None:
    pages = sorted((ROOT / "docs").glob("speed-*.md"))
    assert pages
    for page in pages:
        (records,) = RECORDS.glob(f"step_{page.stem.removeprefix('speed-')}_*.jsonl")
        assert page.read_text(encoding="utf-8") == results_text(read_steps([records]), page.stem)
        assert page.with_suffix(".png").exists()
