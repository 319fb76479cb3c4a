"""Compiled looks: made once, whole or not at all, and not missed where they cannot be had."""

import subprocess
from pathlib import Path

import pytest
import torch

from symoptim.optim import native
from symoptim.optim.native import Seen, native_look

needs_compiler = pytest.mark.skipif(native_look() is None, reason="needs a C++ compiler and Python's headers")


@pytest.fixture(autouse=True)
def afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native, "native_look", native_look.__wrapped__)


@needs_compiler
def test_a_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.native_look() is not None
    built = list((tmp_path / "symoptim").iterdir())
    assert [path.suffix for path in built] == [".so"], "nothing else is left behind"
    monkeypatch.setattr(subprocess, "run", None)
    assert native.native_look() is not None


@needs_compiler
def test_what_is_seen_is_shape_strides_and_address() -> None:
    look = native.native_look()
    assert look is not None
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    weight.grad = torch.zeros(3, 2).T
    found = look([weight], 1)
    assert found is not None
    seen = Seen(*found)
    forms = memoryview(seen.forms).cast("q").tolist(), memoryview(seen.gradient_forms).cast("q").tolist()
    assert [form[3:] for form in forms] == [[2, 2, 3, 3, 1], [2, 2, 3, 1, 2]]
    assert memoryview(seen.addresses).cast("q").tolist() == [weight.data_ptr()]
    assert memoryview(seen.gradient_addresses).cast("q").tolist() == [weight.grad.data_ptr()]


@needs_compiler
def test_only_lists_are_looked_at() -> None:
    look = native.native_look()
    assert look is not None
    with pytest.raises(TypeError, match="takes a list of tensors, not <class 'tuple'>"):
        look((), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "c++ '"])
def test_without_a_compiler_there_is_none(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert native.native_look() is None
    assert not list(tmp_path.glob("symoptim/*")), "nothing half made is left behind"


def test_without_a_place_to_write_to_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert native.native_look() is None


@needs_compiler
def test_a_compiler_may_come_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "c++ -g0")
    assert native.native_look() is not None


@needs_compiler
def test_a_library_that_cannot_be_loaded_is_compiled_again() -> None:
    built = native._built(["c++"])
    built.write_bytes(b"no library")
    assert native.native_look() is not None
    assert built.stat().st_size > 100
