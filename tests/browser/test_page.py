"""The committed page of the full run in a real browser, at the width of a desk and of a phone."""

import csv
import html
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "results" / "report.html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]

# A page around the page, which measures it once it is laid out and leaves what it found as its text.
WRAPPER = """<!doctype html><iframe id="frame" width="{width}" height="2000" srcdoc="{page}"></iframe>
<pre id="found"></pre><script>
document.getElementById("frame").addEventListener("load", function () {{
  var page = this.contentDocument, root = page.documentElement;
  var texts = function (table) {{
    return Array.from(table.rows, function (row) {{
      return Array.from(row.cells, function (cell) {{ return cell.innerText.trim(); }});
    }});
  }};
  var verdicts = page.getElementById("verdicts"), before = texts(verdicts);
  verdicts.tHead.rows[0].cells[2].click();
  document.getElementById("found").textContent = JSON.stringify({{
    overflow: root.scrollWidth - root.clientWidth,
    table2: texts(page.querySelector("table.matrix")),
    verdicts: before,
    sorted: texts(verdicts),
    drawings: Array.from(page.querySelectorAll("figure svg"), function (drawing) {{
      var box = drawing.getBoundingClientRect();
      return [box.width, box.height, drawing.querySelectorAll("path").length];
    }}),
    ink: this.contentWindow.getComputedStyle(page.body).color,
    paper: this.contentWindow.getComputedStyle(page.body).backgroundColor,
  }});
}});
</script>"""


def look(tmp_path: Path, width: int, *flags: str) -> dict[str, Any]:
    """Open the page in a window of that width, and say what is there."""
    wrapper = tmp_path / "wrapper.html"
    page = html.escape(PAGE.read_text(encoding="utf-8"), quote=True)
    wrapper.write_text(WRAPPER.format(width=width, page=page), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *flags]
    command += ["--disable-background-networking", "--virtual-time-budget=10000", "--dump-dom"]
    dom = subprocess.run(
        [*command, f"file://{wrapper}"], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', dom, flags=re.DOTALL)
    return json.loads(html.unescape(found))


def recorded_cells() -> list[dict[str, str]]:
    with (PAGE.parent / "table2.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_shows_its_table_and_drawings_without_sideways_scrolling(tmp_path: Path, width: int) -> None:
    found = look(tmp_path, width)
    assert found["overflow"] == 0
    assert len(found["table2"]) == 5
    assert [len(row) for row in found["table2"]] == [1 + len(recorded_cells()) // 4] * 5
    assert all(re.match(r"\.\d{4} ±\.\d{4}", cell) for row in found["table2"][1:] for cell in row[1:])
    assert len(found["drawings"]) == 3
    for drawn_width, height, paths in found["drawings"]:
        assert drawn_width > 300
        assert height > 100
        assert paths > 20


def test_the_table_of_the_browser_is_the_table_of_the_csv(tmp_path: Path) -> None:
    found = look(tmp_path, 1400)["table2"]
    shown = [cell.split()[0] for row in found[1:] for cell in row[1:]]
    means = [f"{float(row['mean']):.4f}".removeprefix("0") for row in recorded_cells()]
    assert shown == means


def test_a_click_on_a_heading_sorts(tmp_path: Path) -> None:
    found = look(tmp_path, 1400)
    assert [row[0] for row in found["verdicts"][1:]] == [str(number) for number in range(1, 14)]
    verdicts = [row[2] for row in found["sorted"][1:]]
    assert len([verdict for verdict, _ in itertools.groupby(verdicts)]) == len(set(verdicts)) == 3
    assert sorted(found["sorted"]) == sorted(found["verdicts"])


def brightness(color: str) -> int:
    return sum(int(part) for part in re.findall(r"\d+", color)[:3])


def test_dark_and_light_follow_the_reader(tmp_path: Path) -> None:
    light = look(tmp_path, 1400, "--blink-settings=preferredColorScheme=1")
    dark = look(tmp_path, 1400, "--blink-settings=preferredColorScheme=0")
    assert brightness(light["paper"]) > brightness(light["ink"])
    assert brightness(dark["paper"]) < brightness(dark["ink"])
