"""The library's own files (``.npz``), which hold every discrete model and field exactly, with all names.

A file is a zip of named arrays, as ``numpy.savez`` writes them, read without evaluating anything. `numpy.load` parses
the header of an array as Python, and allocates what the header says; here the header must have exactly the form that
NumPy writes for one-dimensional arrays, and must agree with the size of the file.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._fields import FieldTerms
from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import CheckedArrays, Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._models.state_names import read_state_names
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, FormatError
from dobrushin.io.source import Source, from_json, quote, read_labels, read_names, shown, to_json

_FORMAT = "dobrushin model 1"
_FORMS: dict[str, type[Form]] = {
    form.stored_as: form for form in (SpinPairs, LabelPairs, PairTables, SpinTerms, FactorTables, FieldTerms)
}


def write(model: Model) -> bytes:
    """Write a model as an ``.npz`` file.

    A family defined by a user is read back as the built-in family with the same form.
    """
    form = model._form
    texts = {"format": f"{_FORMAT} {form.stored_as}".encode()}
    if not check.are_positions(model.labels):
        texts["labels"] = to_json(list(model.labels))
    if (names := model._state_names) is not None:
        texts["state_names"] = to_json({"each": list(names.own)} if names.common is None else {"all": names.common})
    arrays: dict[str, NDArray[Any]] = {name: np.frombuffer(text, dtype=np.uint8) for name, text in texts.items()}
    kinds = form.stored_arrays | form.optional_arrays
    return pack(arrays | {name: array.astype(kinds[name]) for name, array in form.to_arrays().items()})


def read(source: Source) -> Model:
    """Read a model from an ``.npz`` file."""
    arrays = unpack(source)
    told = arrays.pop("format", np.empty(0, dtype=np.uint8)).tobytes().decode("utf-8", "replace")
    form = _FORMS.get(told.removeprefix(f"{_FORMAT} "))
    if form is None or not told.startswith(_FORMAT):
        raise source.error(f"the format '{_FORMAT}' and a family", shown(told))
    labels, state_names = arrays.pop("labels", None), arrays.pop("state_names", None)
    optional = {name: kind for name, kind in form.optional_arrays.items() if name in arrays}
    expected = form.stored_arrays | optional
    if {name: array.dtype for name, array in arrays.items()} != expected:
        raise source.error(f"the arrays {', '.join(sorted(expected))}", ", ".join(sorted(map(shown, arrays))[:8]))
    try:
        read_form = form.from_arrays(CheckedArrays(arrays, source.error, source.require_memory))
    except ArgumentError as error:
        raise source.error("a model", f"arrays that describe no valid model ({str(error).rstrip('.')})") from None
    for array in (labels, state_names):
        if array is not None and array.dtype != np.uint8:
            raise source.error("labels as text", "numbers")
    own = None if labels is None else read_labels(source, from_json(source, labels.tobytes()), read_form.n_variables)
    model = read_form.to_model(own)
    if state_names is None:
        return model
    is_common, names = read_names(source, state_names.tobytes(), "each")
    try:
        return model._name_states(read_state_names(names * model.n_variables if is_common else names, model))
    except ArgumentError as error:
        raise source.error("names of the states of each variable", f"others ({str(error).rstrip('.')})") from None


# -- arrays in a zip file ---------------------------------------------------------------------------


_HEADER = re.compile(rb"\{'descr': '(<f8|<i8|\|u1)', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n")
_MAGIC = b"\x93NUMPY\x01\x00"


def pack(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Pack one-dimensional arrays of float64, int64 or uint8 into a zip file, without time stamps."""
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
    """Read the arrays of an ``.npz`` file, by name."""
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
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
                    raise source.error("an array that is stored or deflated", "another compression")
                with packed.open(info) as member:
                    # zipfile stops at the size that the directory tells, and then compares the checksum.
                    content = member.read(info.file_size + 1)
                if len(content) != info.file_size:
                    raise source.error(f"{info.file_size} bytes of {quote(info.filename)}", f"{len(content)}")
                arrays[name] = _read_array(source, name, content)
            return arrays
    except FormatError:
        raise
    except Exception as error:  # zipfile raises errors of many kinds on damaged files
        raise source.error("a zip file of arrays", f"a damaged one ({quote(str(error))})") from None


def _require_nothing_else(source: Source, packed: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> None:
    """Fail if a zip file has bytes before, between or after its members."""
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
