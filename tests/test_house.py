"""Rules of the house: imports point one way, files stay short, the public surface is what it says."""

import ast
import csv
import gzip
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import symoptim
from symoptim.paper.registry import write_report
from symoptim.paper.segnet.comparison import compare
from symoptim.paper.segnet.summary import spreads, summarize_scenes
from symoptim.paper.segnet.tables import score_lines
from symoptim.symmetry.rules import registry

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "symoptim"
RESULTS = ROOT / "docs" / "results"


def layers() -> dict[str, set[str]]:
    """What each package may import besides itself: the table of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", text, flags=re.MULTILINE)
    return {package: {one.strip() for one in allowed.split(",")} - {""} for package, allowed in rows}


PUBLIC = [
    "BoldDriver",
    "ConservedQuantities",
    "FullMetricSGD",
    "Geometric",
    "OwnRow",
    "PathNorm",
    "Pooled",
    "Role",
    "ScaledSGD",
    "SymmetrySpec",
    "UnitNormSGD",
    "align",
    "balance_",
    "canonicalize_",
    "clip_invariant_norm_",
    "discover",
    "equalize_",
    "invariant",
    "models",
    "param_groups",
]


def imported_parts(path: Path) -> set[str]:
    """Parts of the package that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = [name.split(".") for name in names if name.split(".")[0] == "symoptim"]
    return {parts[1] if len(parts) > 1 else "symoptim" for parts in ours}


def test_imports_point_one_way_and_the_table_says_which() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part != "__init__":
            found.setdefault(part, set()).update(imported_parts(path) - {part})
    assert layers() == found
    done: set[str] = set()
    for part, others in layers().items():  # a cycle would have no order
        assert others - {"symoptim"} <= done, f"{part} stands above what it imports"
        done.add(part)


def test_files_stay_short_enough_to_read() -> None:
    long = {path.name: n for path in SOURCE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 400}
    assert not long


def test_public_names_are_exactly_these_and_documented() -> None:
    assert sorted(symoptim.__all__) == PUBLIC
    assert all(inspect.getdoc(getattr(symoptim, name)) for name in PUBLIC)


def test_importing_the_package_needs_torch_alone() -> None:
    extras = ["numpy", "matplotlib", "rich", "typer", "jinja2", "pooch", "sklearn", "PIL"]
    code = (
        "import sys, torch; before = set(sys.modules); import symoptim; new = set(sys.modules) - before\n"
        f"assert not new & set({extras!r}), new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reading_records_and_starting_the_command_line_need_no_torch() -> None:
    modules = [
        "symoptim.cli.app",
        "symoptim.paper",
        "symoptim.paper.records.database",
        "symoptim.bench.tables",
    ]
    code = f"import sys, {', '.join(modules)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_wheel_holds_the_package_and_imports(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("symoptim-*.whl")
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(installed), str(wheel)], check=True)
    code = (
        "import symoptim, importlib.metadata as m; print(symoptim.__file__); symoptim.models.arch2(4);"
        "assert m.version('symoptim') == symoptim.__version__"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(installed)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.startswith(str(installed))
    assert (installed / "symoptim" / "py.typed").exists()
    assert not list(installed.glob("tests*"))


def code_in(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def readme_code() -> list[str]:
    return code_in((ROOT / "README.md").read_text())


@pytest.mark.parametrize("index", range(len(readme_code())))
def test_code_in_the_readme_runs(index: int) -> None:
    exec(compile("\n".join(readme_code()[: index + 1]), "README.md", "exec"), {})


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_code_in_the_documentation_runs_and_prints_what_it_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r'@rule\("(\w+)"\)', text):  # what a page adds does not stay
        monkeypatch.setitem(registry.RULES, name, None)
        monkeypatch.delitem(registry.RULES, name)
    exec(compile("\n".join(code_in(text)), page.name, "exec"), {})
    printed = capsys.readouterr().out.split("True")[0]
    assert printed in text
    assert bool(printed.strip()) == ("print(spec)" in text)


def test_the_tables_in_the_readme_are_what_is_printed() -> None:
    names: dict[str, object] = {}
    exec(compile("\n".join(readme_code()[:2]), "README.md", "exec"), names)
    for shown in ("groups", "spec"):
        assert f"```\n{names[shown]}\n```" in (ROOT / "README.md").read_text()


def test_pictures_and_links_of_the_readme_exist() -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / "README.md").read_text())
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing


def written_anew(results: Path, folder: Path) -> Path:
    """A report written from the committed records of a full run."""
    (folder / "records.sqlite").write_bytes(gzip.decompress((results / "records.sqlite.gz").read_bytes()))
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full_run")
    (folder / "invariance.csv").write_bytes((RESULTS / "invariance.csv").read_bytes())
    return written_anew(RESULTS, folder)


@pytest.fixture(scope="module")
def segnet_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_anew(RESULTS / "segnet", tmp_path_factory.mktemp("segnet_run"))


@pytest.mark.parametrize("name", ["table2.md", "table2.csv", "claims.md", "claims.csv", "trajectories.csv"])
def test_the_committed_results_are_what_the_records_say(full_run: Path, name: str) -> None:
    assert (RESULTS / name).read_text(encoding="utf-8") == (full_run / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["scores.md", "scores.csv", "curves.csv", "sensitivity.csv"])
def test_the_committed_scores_of_segnet_are_what_the_records_say(segnet_run: Path, name: str) -> None:
    committed = (RESULTS / "segnet" / name).read_text(encoding="utf-8")
    assert committed == (segnet_run / name).read_text(encoding="utf-8")


def words_of_the_page(folder: Path) -> str:
    """A page without its drawings, which differ with matplotlib's version."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    return re.sub(r"<svg.*?</svg>|data:image/png;base64,[^\"]+", "", page, flags=re.DOTALL)


def test_the_committed_page_is_what_the_records_say(full_run: Path) -> None:
    assert words_of_the_page(RESULTS) == words_of_the_page(full_run)


def test_the_committed_page_of_segnet_is_what_the_records_say(segnet_run: Path) -> None:
    assert words_of_the_page(RESULTS / "segnet") == words_of_the_page(segnet_run)


def test_the_readme_has_segnets_scores_and_its_results_the_verdict(segnet_run: Path) -> None:
    summary = summarize_scenes(segnet_run / "records.sqlite")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = [line for line in score_lines(summary) if line.is_ours]
    assert len(ours) == 5
    for line in ours:
        assert f"| {line.system} | {' | '.join(line.texts)} |" in readme
    about = " ".join((RESULTS / "segnet" / "README.md").read_text(encoding="utf-8").split())
    found = compare(summary)
    assert found is not None
    for number in (found.mean, found.rival_mean, -found.difference, found.error, found.p):
        assert f"{number:.3f}" in about
    assert f"95 % interval {found.low:+.3f} to {found.high:+.3f}" in about
    assert all(f"{spread:.2f}" in about for spread in spreads(summary.search).values())


def test_the_readme_agrees_with_the_records(full_run: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (full_run / "claims.md").read_text(encoding="utf-8").strip() in readme
    with (full_run / "table2.csv").open(encoding="utf-8") as file:
        cells = [cell for cell in csv.DictReader(file) if cell["paper_mean"]]
    within = sum(float(c["mean"]) <= float(c["paper_mean"]) + float(c["paper_deviation"]) for c in cells)
    assert f"{within} of the {len(cells)} means are at or under the paper's" in readme
