"""The IDX format of MNIST: a type, the sizes of the axes, and bytes; plain or gzipped.

bytes 0-1   zero
byte  2     type of the values; 8 is unsigned byte, the only one read here
byte  3     number of axes
then        one big-endian 32-bit size per axis, then the values
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from symoptim.errors import DataError

UNSIGNED_BYTE = 8
GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Contents of a file, unzipped if it is gzipped, whatever its name."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(GZIP_MAGIC) else raw
    except EOFError as error:
        raise DataError(f"{path} is truncated: its compressed data end early") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is corrupt: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def parse_idx(content: bytes, path: Path) -> Tensor:
    """Tensor of unsigned bytes of an IDX file; its path is for messages.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), Path("labels"))
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{path} is not an IDX file: it starts with {content[:4].hex(' ') or 'nothing'}")
    kind, axes = content[2], content[3]
    header = 4 + 4 * axes
    if kind != UNSIGNED_BYTE:
        raise DataError(
            f"{path} holds values of IDX type {kind}; only {UNSIGNED_BYTE}, unsigned bytes, can be read"
        )
    if len(content) < header:
        raise DataError(f"{path} is truncated: {len(content)} bytes, its header alone has {header}")
    shape = struct.unpack(f">{axes}I", content[4:header])
    expected = header + math.prod(shape)
    if len(content) != expected:
        cause = "is truncated" if len(content) < expected else "has bytes too many"
        raise DataError(f"{path} {cause}: {len(content)} bytes, its header promises {expected}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).reshape(shape)
