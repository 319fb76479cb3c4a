"""What the documentation shows is what the committed records say."""

from importlib import import_module
from pathlib import Path

import pytest

from symoptim.bench.records import read_steps

ROOT = Path(__file__).parent.parent.parent
RECORDS = ROOT / "benchmarks" / "results"


def test_the_tables_of_the_documentation_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    written = import_module("page")
    pages = sorted((ROOT / "docs").glob("speed-*.md"))
    assert len(pages) == 2
    for page in pages:
        (records,) = RECORDS.glob(f"step_{page.stem.removeprefix('speed-')}_*.jsonl")
        steps = read_steps([records])
        assert page.read_text(encoding="utf-8") == written.text_of(steps, page.stem)
        assert page.with_suffix(".png").exists()
