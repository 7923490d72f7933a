"""The file itself: a zip of one JSON document and plain arrays."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared.files import replace_file

FORMAT = "dobrushin proof 1"
# Every file has this date: the same proof is the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_KINDS = {"f": "<f8", "i": "<i8"}


class Arrays:
    """Arrays with names of their own, of the plan or of the outcomes."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    def add(self, name: str, values: Any) -> str:
        """Keep an array; its name, made different from the others by a number."""
        array = np.asarray(values)
        kind = "f" if array.dtype.kind == "f" else "i"
        array = np.ascontiguousarray(array.astype(_KINDS[kind]))
        if kind == "i" and array.size and array.min() >= -128 and array.max() < 128:
            array = array.astype("|i1")
        elif kind == "i" and array.size and array.min() >= -(2**15) and array.max() < 2**15:
            array = array.astype("<i2")
        for known, other in self.arrays.items():
            if known.startswith(name) and np.array_equal(other, array) and other.dtype == array.dtype:
                return known
        own = name if name not in self.arrays else f"{name}{len(self.arrays)}"
        self.arrays[own] = array
        return own

    def declare(self) -> dict[str, Any]:
        """What the document says of them."""
        return {
            name: {
                "kind": array.dtype.str,
                "shape": list(array.shape),
                "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
            }
            for name, array in self.arrays.items()
        }


def seed_from(plan: dict[str, Any]) -> int:
    """The seed that follows from a plan."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def write_archive(
    path: str | os.PathLike[str], plan: dict[str, Any], outcomes: dict[str, Any], claim: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
) -> None:  # fmt: skip
    """Replace the file as a whole."""
    document = {"format": FORMAT, "plan": plan, "outcomes": outcomes, "claim": claim}
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(zipfile.ZipInfo("proof.json", _DATE), text, zipfile.ZIP_DEFLATED)
        for name, array in arrays.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _DATE), data.getvalue(), zipfile.ZIP_DEFLATED)
    replace_file(os.fspath(path), buffer.getvalue())
