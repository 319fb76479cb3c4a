import json
import sys

import pytest

from symoptim.support import provenance


def test_the_digest_is_of_the_source_files(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    first = provenance.code_digest()
    assert provenance.code_digest() == first
    (tmp_path / "a.py").write_text("x = 2")
    assert provenance.code_digest() != first


def test_the_digest_of_a_module_is_of_what_it_imports(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "symoptim"
    package.mkdir()
    monkeypatch.setattr(provenance, "PACKAGE", package)
    texts = {
        "trains": "from symoptim import rule\ndef train():\n    import symoptim.step\n",
        "rule": "LATER = 'symoptim.kernel'",
        "step": "import math",
        "kernel": "from symoptim.trains import train",
        "report": "import symoptim.trains",
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    files = provenance.imported_files("symoptim.trains")
    assert {path.stem for path in files} == {"trains", "rule", "step", "kernel"}
    whole, part = provenance.code_digest(), provenance.code_digest("symoptim.trains")
    (package / "report.py").write_text("import symoptim.trains  # in other words")
    assert provenance.code_digest("symoptim.trains") == part
    assert provenance.code_digest() != whole
    (package / "kernel.py").write_text("x = 2")
    assert provenance.code_digest("symoptim.trains") != part


def test_a_package_outside_a_checkout_has_no_commit(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    assert provenance.commit() is None


def test_the_command_is_what_one_would_type(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/usr/bin/symoptim", str(provenance.PACKAGE / "__main__.py")):
        monkeypatch.setattr(sys, "argv", [program, "reproduce", "table2", "--out", "my results"])
        assert provenance.command_line() == "symoptim reproduce table2 --out 'my results'"
    monkeypatch.setattr(sys, "argv", ["/home/me/symoptim-study/train.py", "now"])
    assert provenance.command_line() == "/home/me/symoptim-study/train.py now"


def test_a_process_describes_itself() -> None:
    about = json.loads(provenance.describe_process())
    assert about["packages"]["torch"]
    assert about["process"] > 0
