"""Writing results: a file is there whole, or as it was before."""

import contextlib
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from symoptim.errors import RecordsError


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV, with every digit.

    >>> csv_text(["a", "b"], [[1, "x, y"]]).splitlines()
    ['a,b', '1,"x, y"']
    """
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return table.getvalue()


def require_folder(folder: Path) -> None:
    """Make a folder and all above it, before long work is done for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise RecordsError(f"{folder} is no folder, or below a file: choose another --out") from error
    except OSError as error:
        raise RecordsError(f"{folder} cannot be made ({error.strerror}): choose another --out") from error


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts to files of a folder, by name, each in one step."""
    paths: list[Path] = []
    for name, text in texts.items():
        path = folder / name
        half = folder / f".{name}.part"
        require_folder(folder)
        try:
            half.write_text(text, encoding="utf-8")
            half.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                half.unlink()
            raise RecordsError(f"{path} cannot be written ({error.strerror})") from error
        paths.append(path)
    return paths
