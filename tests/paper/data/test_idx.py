import gzip
from pathlib import Path

import pytest
import torch

from symoptim.errors import DataError
from symoptim.paper.data.idx import parse_idx, read_bytes

GOOD = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(6))


@pytest.mark.parametrize("name", ["plain", "zipped.gz", "zipped without its ending"])
def test_plain_and_gzipped_files_read_alike(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(GOOD if name == "plain" else gzip.compress(GOOD))
    assert torch.equal(parse_idx(read_bytes(path), path), torch.arange(6, dtype=torch.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an IDX file: it starts with nothing"),
        (b"<html>", "is not an IDX file: it starts with 3c 68 74 6d"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "holds values of IDX type 13; only 8, unsigned bytes"),
        (GOOD[:9], "is truncated: 9 bytes, its header alone has 12"),
        (GOOD[:-1], "is truncated: 17 bytes, its header promises 18"),
        (GOOD + b"x", "has bytes too many: 19 bytes, its header promises 18"),
    ],
)
def test_what_is_no_good_idx_file_is_refused_with_name_and_cause(content: bytes, says: str) -> None:
    with pytest.raises(DataError, match=f"some/file {says}"):
        parse_idx(content, Path("some/file"))


def test_a_truncated_or_damaged_gzip_file_is_refused_with_name_and_cause(tmp_path: Path) -> None:
    zipped = gzip.compress(GOOD * 100)
    path = tmp_path / "images.gz"
    path.write_bytes(zipped[:-12])
    with pytest.raises(DataError, match=r"images.gz is truncated"):
        read_bytes(path)
    path.write_bytes(zipped[:20] + bytes([zipped[20] ^ 255]) + zipped[21:])
    with pytest.raises(DataError, match=r"images.gz is corrupt"):
        read_bytes(path)
    with pytest.raises(DataError, match=r"absent cannot be read: No such file"):
        read_bytes(tmp_path / "absent")
