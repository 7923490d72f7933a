"""Named arrays in a zip file, as ``numpy.savez`` writes them, read without evaluating anything.

`numpy.load` parses the header of an array as Python and allocates what the header says. Here a header must look exactly
like those that NumPy writes for plain arrays of one axis, and say what the file holds.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.errors import FormatError
from dobrushin.io.numbers import quote
from dobrushin.io.source import Source

_HEADER = re.compile(rb"\{'descr': '(<f8|<i8|\|u1)', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n")
_MAGIC = b"\x93NUMPY\x01\x00"
# What zipfile raises on files that it cannot make sense of.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    RuntimeError,
    NotImplementedError,
    OSError,
)


def pack(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Arrays of one axis of float64, int64 or uint8 as a file, without the time of day."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array.astype(array.dtype.newbyteorder("<")), version=(1, 0))
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(info, member.getvalue())
    return buffer.getvalue()


def unpack(source: Source) -> dict[str, NDArray[Any]]:
    """The arrays of a file."""
    try:
        with zipfile.ZipFile(io.BytesIO(source.data)) as packed:
            members = packed.infolist()
            _require_nothing_else(source, packed, members)
            source.require_memory(float(sum(info.file_size for info in members)), "arrays")
            arrays: dict[str, NDArray[Any]] = {}
            for info in members:
                name = info.filename.removesuffix(".npy")
                if name in arrays:
                    raise source.error("each array once", f"{quote(name)} twice")
                arrays[name] = _read_array(source, name, _content(source, packed, info))
            return arrays
    except FormatError:
        raise
    except _UNREADABLE as error:
        raise source.error("a zip file of arrays", f"a damaged one ({quote(str(error))})") from None


def _require_nothing_else(source: Source, packed: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> None:
    """Fail if there are bytes before, between or after the members: what is not read must not be there."""
    end = 0
    for info in members:
        name, extra = struct.unpack("<HH", source.data[info.header_offset + 26 : info.header_offset + 30])
        if info.header_offset != end:
            break
        end += 30 + name + extra + info.compress_size
    directory = sum(46 + len(info.filename.encode()) + len(info.extra) + len(info.comment) for info in members)
    # Behind the directory its own place, in files beyond 4 GiB twice.
    if end != packed.start_dir or len(source.data) - end - directory not in (22, 22 + 76):
        raise source.error("a zip file of arrays and nothing else", "other bytes in it")


def _content(source: Source, packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise source.error("an array that is stored or deflated", "another compression")
    with packed.open(info) as member:
        # zipfile stops at the size that the directory tells, and then compares the checksum.
        content = member.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise source.error(f"{info.file_size} bytes of {quote(info.filename)}", f"{len(content)}")
    return content


def _read_array(source: Source, name: str, content: bytes) -> NDArray[Any]:
    size = struct.unpack("<H", content[8:10])[0] if len(content) >= 10 else 0
    header = _HEADER.fullmatch(content[10 : 10 + size]) if content.startswith(_MAGIC) else None
    if header is None:
        raise source.error(f"{quote(name)} to be an array of one axis of float64, int64 or uint8", "something else")
    kind, count = np.dtype(header.group(1).decode()), int(header.group(2))
    if count * kind.itemsize != len(content) - 10 - size:
        got = f"{len(content) - 10 - size} bytes"
        raise source.error(f"{count} numbers of {kind.itemsize} bytes in {quote(name)}", got)
    return np.frombuffer(content, kind, count, 10 + size).astype(kind.newbyteorder("="))
