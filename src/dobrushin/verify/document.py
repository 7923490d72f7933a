"""Reading a proof file: a zip of one JSON document and plain arrays. Nothing in it is believed."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

FORMAT = "dobrushin proof 1"
# Bytes that the document may unpack to, numbers that all arrays together may hold, and names in a file.
MOST_TEXT, MOST_NUMBERS, MOST_MEMBERS = 2**26, 2**25, 100_000
KINDS = ("<f8", "<i8", "|i1", "<i2")


class Rejected(Exception):
    """The proof does not hold, or cannot be read as one; the message says why in a sentence."""


def reject(why: str) -> NoReturn:
    """The proof does not hold."""
    raise Rejected(why)


def require(is_so: Any, why: str) -> None:
    """Reject unless something is so."""
    if not is_so:
        raise Rejected(why)


class Document:
    """The three parts of a proof: what was planned before anything was drawn, what was drawn, and what is claimed."""

    def __init__(self, path: str | Path) -> None:
        with open(path, "rb") as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    self._read(archive)
            except Rejected:
                raise
            except Exception as error:  # a broken zip, text or array can raise whatever it likes
                reject(f"The file is not a proof: {error}.")

    def _read(self, archive: zipfile.ZipFile) -> None:
        names = archive.namelist()
        require(len(names) <= MOST_MEMBERS and len(set(names)) == len(names), "The file holds a name twice.")
        require(all(name == Path(name).name and "\\" not in name for name in names), "The file holds paths.")
        require("proof.json" in names, "The file is not a proof: it has no proof.json.")
        whole = _parse(_unpack(archive, "proof.json", MOST_TEXT))
        fields(whole, "proof.json", format=str, plan=dict, outcomes=dict, claim=dict)
        require(whole["format"] == FORMAT, f"The format is {whole['format']!r}, and this reads {FORMAT!r}.")
        self.plan, self.outcomes, self.claim = whole["plan"], whole["outcomes"], whole["claim"]
        self.arrays: dict[str, NDArray[Any]] = {}
        held = 0
        for part in (self.plan, self.outcomes):
            declared = part.get("arrays")
            require(isinstance(declared, dict), "The arrays are not declared.")
            for name, about in declared.items():
                require(name not in self.arrays, f"The array {name!r} is declared twice.")
                self.arrays[name] = _array(archive, name, about)
                held += self.arrays[name].size
                require(held <= MOST_NUMBERS, "The arrays are too large for the checker.")
        known = {"proof.json", *(f"{name}.npy" for name in self.arrays)}
        require(set(names) == known, "The file holds what it does not name.")

    def array(self, name: Any, kind: str, *shape: int, drawn: bool = False) -> NDArray[Any]:
        """An array of this kind that the plan declares, or the outcomes; -1 stands for any length."""
        declared = (self.outcomes if drawn else self.plan)["arrays"]
        require(isinstance(name, str) and name in declared, f"The array {name!r} is missing.")
        array = self.arrays[name]
        fits = array.dtype.kind == kind and array.ndim == len(shape)
        fits = fits and all(want in (-1, size) for want, size in zip(shape, array.shape, strict=True))
        require(fits, f"The array {name!r} has the wrong kind or shape.")
        return array.astype(np.int64) if kind == "i" else array

    def seed_of_plan(self) -> int:
        """The seed that follows from the plan alone."""
        text = json.dumps(self.plan, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def _unpack(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    info = archive.getinfo(name)
    require(info.file_size <= most, f"{name} is too large.")
    with archive.open(info) as file:
        data = file.read(most + 1)
    require(len(data) == info.file_size, f"{name} does not have the size that the file says.")
    return data


def _parse(text: bytes) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len(dict(items)) == len(items), "A name stands twice in proof.json.")
        return dict(items)

    def number(token: str) -> float:
        value = float(token)
        require(math.isfinite(value), "A number in proof.json is not finite.")
        return value

    return json.loads(text, object_pairs_hook=pairs, parse_constant=number, parse_float=number)


def _array(archive: zipfile.ZipFile, name: str, about: Any) -> NDArray[Any]:
    fields(about, f"array {name!r}", kind=str, shape=list, sha256=str)
    shape = tuple(about["shape"])
    whole = all(type(size) is int and size >= 0 for size in shape)
    require(whole and about["kind"] in KINDS and len(shape) <= 3, f"The array {name!r} has a strange shape or kind.")
    fits = math.prod(shape) <= MOST_NUMBERS and f"{name}.npy" in archive.NameToInfo
    require(fits, f"The array {name!r} is missing or too large.")
    data = _unpack(archive, f"{name}.npy", 8 * math.prod(shape) + 4096)
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    fits = array.shape == shape and array.dtype.str == about["kind"]
    require(fits, f"The array {name!r} is not what the document says.")
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    require(digest == about["sha256"], f"The array {name!r} was changed.")
    return np.ascontiguousarray(array)


def fields(value: Any, where: str, **kinds: Any) -> None:
    """Reject a dict that has not exactly these entries, of these kinds."""
    require(isinstance(value, dict), f"{where} is not an object.")
    names = ", ".join(sorted(set(value) ^ set(kinds)))
    require(not names, f"{where} has missing or unknown entries: {names}.")
    for name, kind in kinds.items():
        fits = isinstance(value[name], kind) and (not isinstance(value[name], bool) or kind is bool)
        require(fits, f"{where} has a wrong entry {name!r}.")
