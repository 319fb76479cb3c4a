"""``symoptim reproduce``: what it prints and leaves, and what it says to bad input."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import symoptim
from symoptim.__main__ import main
from symoptim.cli.app import app
from symoptim.cli.options import Updates
from symoptim.ensemble.images import Split
from symoptim.ensemble.registry import UPDATES
from symoptim.ensemble.run import Bold
from symoptim.errors import OptionError
from symoptim.paper import runner
from symoptim.paper.data.digits import load_digits
from symoptim.paper.table2 import experiment
from symoptim.paper.table2.experiment import Table2
from symoptim.paper.table2.protocol import Protocol


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refuse(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Run the command as the console does; it has to end with a message."""
    monkeypatch.setattr(sys, "argv", ["symoptim", "reproduce", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert isinstance(exit_.value.code, str), "a message, which Python prints, and exit code 1"
    return exit_.value.code


def test_the_table_is_printed_and_written(small: list[str], undisturbed: Path) -> None:
    output = invoke(*small[1:], "--out", str(undisturbed))
    assert "Test error on digits, 1 repeat(s)" in output
    assert "bold" in output
    markdown = (undisturbed / "table2.md").read_text(encoding="utf-8")
    assert "| 2 layers, exp. decay |" in markdown
    assert "missing" not in markdown
    assert not list(undisturbed.glob("*holder"))


def test_trajectories_come_from_the_same_records(small: list[str], undisturbed: Path) -> None:
    before = (undisturbed / "table2.csv").read_text()
    output = invoke("trajectories", *small[2:], "--out", str(undisturbed))
    assert "runs that got that far" in output
    assert (undisturbed / "table2.csv").read_text() == before
    assert (undisturbed / "trajectories.csv").read_text().count("\n") > 30


def test_invariance_prints_the_gap_of_every_epoch(tmp_path: Path) -> None:
    output = invoke("invariance", "--epochs", "3", "--out", str(tmp_path))
    rows = [line.split("│") for line in output.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == ["1", "2", "3"]
    for row in rows:
        gaps = [float(gap) for gap in row[2:-1]]
        assert gaps[0] > 1e-2
        assert gaps[2] > 1e-2
        assert max(gaps[1], gaps[3], gaps[4]) < 1e-12
    assert (tmp_path / "invariance.png").exists()
    assert (tmp_path / "invariance.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", "0"], "error: repeats must be at least 1, got 0"),
        (["--updates", "sm,sgd"], "error: unknown update 'sgd'; choose from b-sgd, sm, un, full"),
        (["--updates", ","], "error: updates must be different and at least one"),
        (["--device", "cuda:99"], "error: device 'cuda:99' cannot be used here"),
        (["--grow", "0.5"], "error: grow must be a finite number >= 1, got 0.5"),
        (["--seed", "-1"], "error: seed must be 0 or more, got -1"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "out"
    options = ["table2", "--data", "digits", "--out", str(out), *arguments]
    assert message in refuse(monkeypatch, *options)
    assert not out.exists()


def test_other_options_for_the_same_folder_are_refused(
    monkeypatch: pytest.MonkeyPatch, small: list[str], undisturbed: Path
) -> None:
    before = (undisturbed / "table2.csv").read_text()
    message = refuse(monkeypatch, *small[1:], "--seed", "1", "--out", str(undisturbed))
    assert "was made with seed 0, you asked for seed 1" in message
    assert (undisturbed / "table2.csv").read_text() == before


def test_a_place_that_cannot_be_written_to_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refuse(monkeypatch, "table2", "--data", "digits", "--out", str(tmp_path / "file" / "out"))
    assert "out is no folder, or below a file: choose another --out" in message


def test_invariance_looks_at_its_folder_before_it_trains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    options = ["invariance", "--epochs", "100000", "--out", str(tmp_path / "file")]
    assert "file is no folder" in refuse(monkeypatch, *options)


def test_the_options_reach_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Protocol] = []

    def remember(experiment: Table2, *_: object) -> None:
        asked.append(experiment.protocol)
        raise OptionError("enough")

    monkeypatch.setattr(runner, "carry_out", remember)
    monkeypatch.setattr(experiment, "load", lambda *_, **__: load_digits())
    monkeypatch.setattr(Protocol, "require_images", lambda *_: None)
    options = ["--classifier", "columns", "--grow", "2", "--shrink", "0.25", "--seed", "7", "--repeats", "2"]
    assert (
        refuse(monkeypatch, "table2", "--profile", "paper", "--updates", "SM, un", *options)
        == "error: enough"
    )
    expected = Protocol(
        updates=("sm", "un"), repeats=2, seed=7, bold=Bold(grow=2.0, shrink=0.25), classifier="columns"
    )
    assert asked == [expected]


def test_other_images_under_the_same_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, small: list[str], undisturbed: Path
) -> None:
    def flipped(*_: object, **__: object) -> Split:
        data = load_digits()
        return data._replace(train_images=data.train_images.flip(1))

    monkeypatch.setattr(experiment, "load", flipped)
    assert "was made with digest" in refuse(monkeypatch, *small[1:], "--out", str(undisturbed))


def test_the_updates_in_the_help_are_those_there_are() -> None:
    (option,) = Updates.__metadata__
    assert option.help == f"Columns, of {', '.join(UPDATES)}."


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == symoptim.__version__


def idx(*shape: int) -> bytes:
    header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    count = 1
    for size in shape:
        count *= size
    return header + bytes(count)


NAMES = {
    "train-images-idx3-ubyte": idx(3, 2, 2),
    "train-labels-idx1-ubyte": idx(3),
    "t10k-images-idx3-ubyte": idx(2, 2, 2),
    "t10k-labels-idx1-ubyte": idx(2),
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with four good IDX files, which are not MNIST's."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, content in NAMES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return folder


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "t10k-labels-idx1-ubyte.gz").unlink(), "lacks t10k-labels-idx1-ubyte"),
        (
            lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(
                (f / "train-images-idx3-ubyte.gz").read_bytes()[:-6]
            ),
            "train-images-idx3-ubyte.gz is truncated",
        ),
        (
            lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b" + b"nonsense" * 9),
            "train-images-idx3-ubyte.gz is corrupt",
        ),
        (lambda f: None, "is not MNIST's train-images-idx3-ubyte: its SHA-256 is"),
    ],
    ids=["missing", "truncated", "corrupt", "another set"],
)
def test_bad_data_are_named_and_train_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: Path, damage, message: str
) -> None:
    damage(files)
    out = tmp_path / "out"
    assert message in refuse(monkeypatch, "table2", "--data-dir", str(files), "--out", str(out))
    assert not out.exists()


def test_the_command_line_says_what_it_lacks() -> None:
    code = "import sys; sys.modules['typer'] = None; from symoptim.__main__ import main; main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "error: this command needs typer: in a clone, pip install '.[cli]'\n"


@pytest.mark.parametrize("command", [[], ["reproduce"], ["reproduce", "table2"], ["reproduce", "invariance"]])
def test_every_command_has_help(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output
