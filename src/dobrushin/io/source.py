"""Files as bytes: read and unpacked up to a limit, written whole or not at all."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from dobrushin._shared import validate as check
from dobrushin._shared.files import replace_file
from dobrushin.errors import FormatError

# Bytes that a file may unpack to, and that the arrays it promises may take.
LIMIT = 2**30
# Read in pieces: asking for `limit` bytes at once would allocate them all.
_PIECE = 2**20
_PACKED = b"\x1f\x8b"  # how gzip files begin
_ALLOW_MORE = "Allow more with limit=."

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """The content of a file, unpacked."""

    path: str
    data: bytes
    limit: int

    def error(self, expected: str, found: str, offset: int | None = None, hint: str = "") -> FormatError:
        """What to raise when the content is wrong, at this byte where the place matters."""
        line = None if offset is None else self.data.count(b"\n", 0, offset) + 1
        return FormatError(self.path, expected, found, line, hint)

    def require_memory(self, size: float, what: str, offset: int | None = None) -> None:
        """Fail if arrays of `size` bytes would be more than the limit; call before making them."""
        if not size <= self.limit:
            raise self.error(f"{what} of at most {self.limit} bytes", f"{size:.4g} bytes", offset, _ALLOW_MORE)

    def text(self) -> str:
        """The content as UTF-8."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error("UTF-8 text", f"byte 0x{self.data[error.start]:02x}", error.start) from None


def load(path: Path, limit: int, function: str) -> Source:
    """Read a regular file for a public function; one whose name ends in .gz is unpacked."""
    name = check.path(path, function)
    check.count(limit, function, "limit")
    kind = os.stat(name).st_mode
    # A pipe without a writer would wait for ever.
    if not stat.S_ISREG(kind):
        raise FormatError(name, "a file", "a directory" if stat.S_ISDIR(kind) else "a device or pipe")
    with open(name, "rb") as file:
        if name.lower().endswith(".gz"):
            try:
                with gzip.GzipFile(fileobj=file) as packed:
                    data = _read_up_to(packed, limit, name)
            except EOFError:
                raise FormatError(name, "a whole gzip file", "one that ends early") from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise FormatError(name, "a gzip file", f"a damaged one ({error})") from None
        else:
            data = _read_up_to(file, limit, name)
            if data.startswith(_PACKED):
                raise FormatError(name, "a file that is not packed, or a name that ends in .gz", "a gzip file")
    if not data.strip():
        raise FormatError(name, "content", "an empty file")
    return Source(name, data, limit)


def _read_up_to(file: BinaryIO | gzip.GzipFile, limit: int, name: str) -> bytes:
    pieces, size = [], 0
    while piece := file.read(_PIECE):
        size += len(piece)
        if size > limit:
            raise FormatError(name, f"at most {limit} bytes when unpacked", "more", hint=_ALLOW_MORE)
        pieces.append(piece)
    return b"".join(pieces)


def save(path: Path, data: bytes, function: str) -> None:
    """Replace a file as a whole; packed where its name ends in .gz."""
    name = os.path.realpath(check.path(path, function))
    if os.fsdecode(path).lower().endswith(".gz"):
        # Without the time of day, so that the same model gives the same file.
        data = gzip.compress(data, mtime=0)
    try:
        replace_file(name, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None
