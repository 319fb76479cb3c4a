"""The page, read as a browser would: every part is there, and nothing is fetched from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from symoptim.errors import RecordsError
from symoptim.paper.invariance.pairs import Pair, to_csv
from symoptim.paper.table2.claims import CLAIMS
from symoptim.paper.table2.report import (
    INVARIANCE,
    facts,
    papers_own,
    protocol_facts,
    provenance,
    remarks,
    render,
)
from symoptim.paper.table2.summary import Summary
from tests.support.recorded import a_recorded_run, a_summary, every_run

VOID = {"meta", "link", "img", "br", "path", "use", "rect", "circle", "stop"}


class Reader(HTMLParser):
    """Collects ids, tables and addresses, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tables: list[list[list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if "id" in named and "svg" not in self.open:
            self.ids.append(named["id"] or "")
        self.addresses += [named[key] or "" for key in ("src", "href") if key in named]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data.strip() + " "


def read(summary: Summary, folder: Path) -> tuple[str, Reader]:
    html = render(summary, folder)
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    return html, reader


def test_every_part_is_there_and_every_link_leads_to_one(tmp_path: Path) -> None:
    (tmp_path / INVARIANCE).write_text(to_csv([Pair("arch1", "b-sgd", (2.0, 1.0), (2.0, 1.5))]))
    html, reader = read(every_run(), tmp_path)
    parts = ["table2", "claims", "trajectories", "architectures", "invariance", "rates", "endings", "words"]
    assert set(parts) <= set(reader.ids)
    inside = [address[1:] for address in reader.addresses if address.startswith("#")]
    assert set(parts) <= set(inside)
    assert html.count("<svg") == 3
    assert "split by 50%" in html


def test_the_invariance_experiment_is_found_where_its_command_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "invariance").mkdir()
    pairs = [Pair("arch1", "b-sgd", (2.0, 1.0), (2.0, 1.5))]
    (tmp_path / "invariance" / INVARIANCE).write_text(to_csv(pairs))
    html, _ = read(every_run(), tmp_path / "mnist-quick")
    assert "split by 50%" in html


def test_nothing_is_fetched_from_elsewhere(tmp_path: Path) -> None:
    html, reader = read(every_run(), tmp_path)
    assert all(address.startswith("#") for address in reader.addresses)
    assert not re.findall(r"url\((?!#)|@import|<link|<img", html)


def test_table_2_has_every_cell_beside_the_papers(tmp_path: Path) -> None:
    _, reader = read(every_run(), tmp_path)
    matrix = reader.tables[0]
    assert matrix[0][1:] == [f"{a} {u} " for a in ("Arch1", "Arch2") for u in ("B-SGD", "SM", "UN")]
    assert [row[0] for row in matrix[1:]] == [
        f"{depth} layers, {schedule} " for depth in (2, 4) for schedule in ("exp. decay", "bold driver")
    ]
    assert all("n = 2" in cell and "paper ." in cell for row in matrix[1:] for cell in row[1:])
    assert ".0191 ±.0001" in matrix[1][1]


def test_the_lowest_mean_of_a_row_is_bold_once(tmp_path: Path) -> None:
    html, _ = read(every_run(), tmp_path)
    assert html.count('<span class="best">') == 4


def test_all_claims_are_there_with_a_mark_that_needs_no_color(tmp_path: Path) -> None:
    _, reader = read(every_run(), tmp_path)
    rows = reader.tables[1][1:]
    assert [row[0].strip() for row in rows] == [str(number) for number in range(1, 14)]
    assert all(re.match(r"[✓✗?] (held|not held|undecided)", row[2]) for row in rows)
    assert len(reader.tables[2]) > 80


BROKEN = {
    "nothing yet": a_summary([], repeats=3),
    "one repeat": every_run(repeats=1),
    "all of a cell diverged": a_summary([a_recorded_run(repeat=0, errors=[0.9], diverged=True)], repeats=1),
    "without a rate": a_summary(
        [a_recorded_run(repeat=0, errors=[], diverged=True, reason="every candidate rate diverged")],
        repeats=1,
    ),
    "under way": a_summary([a_recorded_run(repeat=0, errors=[0.5], reason=None)], repeats=2),
    "an update of one's own": a_summary(
        [a_recorded_run(repeat=k, errors=[0.1, 0.05], update="lion") for k in range(2)],
        repeats=2,
        updates=["sm", "lion"],
        titles={"sm": "SM", "lion": "<Lion> & co."},
    ),
    "one architecture": a_summary([], architectures=["arch1"], depths=[3]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_records_that_lack_something_make_a_page_that_says_so(case: str, tmp_path: Path) -> None:
    html, _ = read(BROKEN[case], tmp_path)
    assert ("With one repeat there are no deviations" if case == "one repeat" else "have not ended") in html
    assert "symoptim reproduce invariance --out" in html


def test_names_are_escaped(tmp_path: Path) -> None:
    html, _ = read(BROKEN["an update of one's own"], tmp_path)
    assert "&lt;Lion&gt; &amp; co." in html
    assert "<Lion>" not in html


def test_an_empty_file_of_the_invariance_experiment_is_named(tmp_path: Path) -> None:
    (tmp_path / INVARIANCE).write_text("")
    with pytest.raises(RecordsError, match=r"invariance.csv is empty: remove it"):
        read(every_run(), tmp_path)


def test_the_papers_own_numbers_are_asked_the_same() -> None:
    own = {claim.number: papers_own(claim) for claim in CLAIMS}
    assert own[1] == "10 of 12 agree"
    assert own[5] == "4 of 4 agree"
    assert own[10] == "6 of 6 agree"
    assert own[11] == own[12] == ""


def test_the_facts_say_what_was_done_and_what_came_out() -> None:
    said = dict(facts(every_run()))
    assert said["protocol"] == "the paper's in full; 2 repeats of 24 cells"
    assert said["trained"] == "48 networks on cpu in 61 s"
    assert said["lowest mean error"] == ".0171 ±.0001: 2-layer Arch2, B-SGD, exp. decay"
    assert said["beside the paper's"] == (
        "15 of 24 means within one standard deviation, 9 below, 0 above; 24 deviations smaller"
    )
    assert said["the paper's claims"].endswith("undecided (2 not tested)")


def test_smaller_experiments_and_other_data_do_not_compare() -> None:
    quick = every_run()
    quick.experiment.configuration["profile"] = "quick"
    digits = every_run(data="digits")
    for summary in (quick, digits):
        assert "beside the paper's" not in dict(facts(summary))
        (remark,) = remarks(summary)
        assert "errors do not compare" in remark
    assert dict(facts(digits))["data"] == "scikit-learn's 8x8 digits"


def test_what_is_missing_is_said() -> None:
    assert remarks(every_run()) == []
    (remark,) = remarks(a_summary([], repeats=2))
    assert remark == "48 of 48 full runs have not ended: run the same command to go on."
    diverged = a_summary([a_recorded_run(repeat=0, errors=[0.9], diverged=True)], repeats=1)
    words = " ".join(remarks(diverged))
    assert "23 of 24 full runs have not ended" in words
    assert "1 full run(s) diverged" in words
    assert "With one repeat" in words


def test_the_protocol_is_told_in_numbers() -> None:
    words = " ".join(value for _, value in protocol_facts(every_run()))
    for fact in (
        "0.01, 0.001",
        "50000 random",
        "times 0.95",
        "times 1.1",
        "after epoch 25",
        "by 255",
        "summed",
    ):
        assert fact in words


def test_the_provenance_says_where_the_numbers_come_from() -> None:
    text = provenance(every_run())
    for fact in (
        "command: symoptim reproduce table2",
        "61 s in 1 session",
        "seed 0",
        "torch 2.13.0",
        "not yet",
    ):
        assert fact in text
    assert "only the profile paper compares" not in text


def test_a_small_experiment_says_that_it_does_not_compare() -> None:
    summary = every_run()
    summary.experiment.configuration["profile"] = "quick"
    assert "only the profile paper compares" in provenance(summary)
