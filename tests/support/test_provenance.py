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
