"""Write proof files: a zip of one JSON document and plain arrays."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared.environment import replace_file
from dobrushin._shared.running import seed_sequence
from dobrushin.errors import ArgumentError

FORMAT = "dobrushin proof 2"
# Every file has this date: the same proof is the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
# Shorter arrays are not compressed.
_SHORT_BYTES = 512


class Arrays:
    """The arrays of a proof, by name; names that begin with "counts" are those of outcomes."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._known: dict[tuple[str, str, tuple[int, ...], bytes], str] = {}

    def add(self, name: str, values: Any) -> str:
        """Store an array, and return its name: with a number if another array has this name already."""
        array = _small(np.asarray(values))
        key = (name, array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = name if name not in self.arrays else f"{name}{len(self.arrays)}"
            self.arrays[self._known[key]] = array
        return self._known[key]


def _small(array: NDArray[Any]) -> NDArray[Any]:
    """Return floats as doubles, and whole numbers in the smallest of one, two or eight bytes."""
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype="<f8")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    kind = "|i1" if low >= -128 and high < 128 else "<i2" if low >= -(2**15) and high < 2**15 else "<i8"
    return np.ascontiguousarray(array, dtype=kind)


def text_of(plan: dict[str, Any]) -> str:
    """Return a plan as JSON text; the seed is derived from this text and from the arrays of the plan."""
    return json.dumps(plan, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def seed_from(plan: str, arrays: dict[str, NDArray[Any]]) -> int:
    """Return the seed that is derived from the text and the arrays of a plan, by SHA-256."""
    planned = [name for name in sorted(arrays) if not name.startswith("counts")]
    texts = [f"{name} {arrays[name].dtype.str} {arrays[name].shape} ".encode() for name in planned]
    whole = hashlib.sha256(plan.encode())
    for name, text in zip(planned, texts, strict=True):
        whole.update(text)
        whole.update(arrays[name].data)
    return int.from_bytes(whole.digest()[:16], "big")


def different_names(labels: Iterable[Hashable]) -> list[str]:
    """Return the labels as text: `str` of each, or `repr` of each if two would be equal."""
    known = list(labels)
    names = [str(label) for label in known]
    return names if len(set(names)) == len(names) else [repr(label) for label in known]


def write_factors(
    arrays: Arrays, positions: NDArray[np.int64], states: Any = 2, scopes: Any = ((), ()), tables: Any = (),
) -> None:  # fmt: skip
    """Add the arrays of a model: positions and numbers of states of its variables, and its factors."""
    sizes, members = scopes
    arrays.add("positions", positions)
    arrays.add("states", np.broadcast_to(states, len(positions)))
    arrays.add("arity", np.asarray(sizes, dtype=np.int64))
    arrays.add("scope", np.asarray(members, dtype=np.int64))
    arrays.add("tables", np.asarray(tables, dtype=np.float64))


def plan_about(variables: int, names: list[str], questions: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return the first entries of a plan: the model's number of variables, the names of some, and the questions."""
    nothing: dict[str, Any] = {"states": {}, "evidence": [], "dropped": [], "fingerprint": ""}
    return nothing | {"variables": int(variables), "names": names, "questions": questions} | more


def write_file(
    path: str | os.PathLike[str], plan: dict[str, Any], parts: list[dict[str, Any]], claim: dict[str, Any],
    arrays: Arrays, seed: Any = None,
) -> None:  # fmt: skip
    """Write a proof file from its plan, the outcomes of the parts, and the claim; replace an existing file."""
    text = text_of(plan)
    outcomes = {"seed": _seed_entry(seed, plan, text, arrays), "parts": parts}
    rest = json.dumps({"format": FORMAT, "outcomes": outcomes, "claim": claim}, ensure_ascii=True, allow_nan=False)
    members = {"proof.json": f'{{"plan": {text}, {rest[1:]}'.encode()}
    for name, array in arrays.arrays.items():
        data = io.BytesIO()
        np.lib.format.write_array(data, array, allow_pickle=False)
        members[f"{name}.npy"] = data.getvalue()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            kind = zipfile.ZIP_STORED if len(content) < _SHORT_BYTES else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, kind, compresslevel=1)
    replace_file(os.fspath(path), buffer.getvalue())


def _seed_entry(seed: Any, plan: dict[str, Any], text: str, arrays: Arrays) -> list[int]:
    """Return the seed as the file stores it; empty if the checker can derive the seed from the plan."""
    if not any("kernel" in part for part in plan["parts"]):
        return []
    sequence = seed_sequence(seed)
    entropy = sequence.entropy
    if not isinstance(entropy, int) or sequence.pool_size != 4:
        raise ArgumentError("seed", "one whole number, with a spawn key or without", seed)
    spawn_key = [int(k) for k in sequence.spawn_key]
    if entropy == seed_from(text, arrays.arrays) and not spawn_key:
        return []
    return [entropy, *spawn_key]
