import functools
import http.server
import io
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from symoptim.cli.progress import DownloadBar, ProgressBar
from symoptim.ensemble.epoch_rules import Epoch
from symoptim.paper.runner import Progress

pooch = pytest.importorskip("pooch")


def a_console() -> Console:
    return Console(file=io.StringIO(), width=120, force_terminal=True)


def shown_on(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that keeps its log to itself."""

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of one file."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(bytes(5000))
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/file"
        server.shutdown()


def test_a_download_shows_how_far_it_is(address: str, tmp_path: Path) -> None:
    console = a_console()
    bar = DownloadBar(console)
    for name in ("one", "two"):
        downloader = pooch.HTTPDownloader(progressbar=bar)
        pooch.retrieve(address, known_hash=None, fname=name, path=tmp_path, downloader=downloader)
    assert "5.0/5.0 kB" in shown_on(console)
    assert bar.progress is None


def test_progress_shows_runs_done_and_the_median_error() -> None:
    console = a_console()
    errors = {"a": 0.25, "b": 0.75, "c": 0.5}
    epochs = {name: Epoch(3, 0.1, 1.0, 0.1, error, math.nan) for name, error in errors.items()}
    with ProgressBar(console) as bar:
        bar(Progress(runs=8, work=100))
        bar(Progress("selection/arch1-2", epochs, runs_done=5, runs=8, work_done=25, work=100, skipped=50))
    output = shown_on(console)
    assert "selection/arch1-2 epoch 3" in output
    assert "5/8 runs, median error 0.5000" in output
    assert "50%" in output  # of what is left after the skipped half
