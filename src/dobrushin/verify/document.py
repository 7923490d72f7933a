"""Read a proof file: a zip of one JSON document and plain arrays, within limits of time and memory.

The author of the file may be hostile. So the type of each entry is checked, sizes are charged to a
`Budget` before anything is unpacked or computed, and nothing is ever executed.
"""

import hashlib
import io
import json
import math
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "dobrushin proof 2"
MAX_MEMBERS = 100_000  # files in the zip
KINDS = ("<f8", "<i8", "|i1", "<i2")  # doubles, and whole numbers of 8, 1 and 2 bytes
INTERPRETER = 2**27  # bytes that Python and NumPy take before anything is read
Array = NDArray[Any]


class Rejected(Exception):
    """The proof does not hold, or the file is no proof; the message says why in a sentence."""


class TooLarge(Exception):
    """The check would take more time or memory than it may, or more precision than it has."""


class NotComparable(Exception):
    """The model file cannot be compared with the proof."""


def require(is_so: Any, why: str) -> None:
    """Reject the proof unless a condition is met."""
    if not is_so:
        raise Rejected(why)


def require_reach(is_so: Any, why: str) -> None:
    """Leave the proof undecided unless a condition on the checker's own limits is met."""
    if not is_so:
        raise TooLarge(why)


def require_all(conditions: dict[str, Any]) -> None:
    """Reject the proof unless all (message, condition) pairs hold; report the first that fails."""
    for why, is_so in conditions.items():
        require(is_so, why)


class Budget:
    """The seconds (as the checker estimates them) and the bytes that a check may still take."""

    def __init__(self, seconds: float, memory: float) -> None:
        self.seconds, self.memory = seconds, memory
        self.spent, self.held = 0.0, float(INTERPRETER)

    def charge(
        self, what: str, seconds: float = 0.0, held: float = 0.0, briefly: float = 0.0
    ) -> None:
        """Charge a step in advance: seconds, bytes `held` from then on, bytes used `briefly`."""
        self.spent += seconds
        if self.spent > self.seconds:
            needed = f"at least {math.ceil(self.spent)} s, and the limit is {self.seconds:g} s"
            raise TooLarge(f"With {what} the check takes {needed}. Raise --time-limit.")
        if self.held + held + briefly > self.memory:
            needed = f"about {math.ceil((self.held + held + briefly) / 2**20)} MiB"
            limit = f"and the limit is {self.memory / 2**20:g} MiB"
            raise TooLarge(f"With {what} the check takes {needed}, {limit}. Raise --memory-limit.")
        self.held += held


def is_a(value: Any, kind: Any) -> bool:
    """Return whether a JSON value is of exactly this type and finite; True is no whole number."""
    return type(value) is kind and (kind is not float or math.isfinite(value))


def entries(value: Any, where: str, **kinds: Any) -> None:
    """Reject a JSON value unless it is an object with exactly these entries of these types."""
    require(isinstance(value, dict), f"{where} is not a JSON object.")
    wrong = sorted(name for name in {*value, *kinds} if not is_a(value.get(name), kinds.get(name)))
    require(not wrong, f"{where} has missing, unknown or mistyped entries: {', '.join(wrong)}.")


def items(values: Any, kind: type, count: int | None = None) -> list[Any]:
    """Return a JSON list after checking its length and the type of its items."""
    is_right = isinstance(values, list) and all(is_a(value, kind) for value in values)
    require(is_right and count in (None, len(values)), "A list has the wrong length or type.")
    return values


def read_array(data: bytes, kinds: tuple[str, ...]) -> Array:
    """Read an .npy file: a header with type and shape, then exactly as many bytes as these say."""
    file = io.BytesIO(data)
    require(np.lib.format.read_magic(file) == (1, 0), "An array is not in version 1.0 of .npy.")
    shape, is_fortran, kind = np.lib.format.read_array_header_1_0(file)
    size = kind.itemsize * math.prod(shape)
    require(
        kind.str in kinds and len(shape) <= 3 and size == len(data) - file.tell(),
        "An array has an unknown type, more than three axes, or the wrong length.",
    )
    return np.ndarray(shape, kind, data, file.tell(), order="F" if is_fortran else "C")


def read_zip(content: bytes, budget: Budget) -> dict[str, bytes]:
    """Unpack a zip file; reject repeated names, and compression other than deflate."""
    require(content.count(b"PK\x01\x02") <= MAX_MEMBERS, "The zip file has too many members.")
    archive = zipfile.ZipFile(io.BytesIO(content))
    members = archive.infolist()
    require(
        len({info.filename for info in members if info.compress_type in (0, 8)}) == len(members),
        "The zip file repeats a name, or has a packing other than deflate.",
    )
    # 16 bytes for each one: packed and unpacked data, whole numbers of 8 bytes, lists of them.
    unpacked = sum(info.file_size for info in members)
    budget.charge("the arrays of the file", held=16.0 * unpacked + 1000.0 * len(members))
    return {info.filename: archive.open(info).read(info.file_size) for info in members}


class Document:
    """Content of a proof file: the plan (fixed before any draw), outcomes of draws, and claim."""

    def __init__(self, content: bytes, budget: Budget) -> None:
        self.budget, self.used, self.arrays = budget, set[str](), dict[str, Array]()
        try:
            members = read_zip(content, budget)
        except zipfile.BadZipFile:
            raise Rejected("The file is not a proof (a zip file), or it is damaged.") from None
        require("proof.json" in members, "The file is not a proof: proof.json is missing.")
        text = members.pop("proof.json")
        for member, data in members.items():
            name, _, ending = member.partition(".")
            is_known = name.isidentifier() and ending == "npy"
            require(is_known, "The zip file has a member with an unknown name.")
            self.arrays[name] = read_array(data, KINDS)
        budget.charge("the text of the file", held=48.0 * len(text))
        whole = json.loads(text, object_pairs_hook=_object)
        entries(whole, "proof.json", format=str, plan=dict, outcomes=dict, claim=dict)
        self.plan, self.outcomes, self.claim = whole["plan"], whole["outcomes"], whole["claim"]
        found = whole["format"]
        require(
            found == FORMAT, f"The file is of format {found!r}, and this checker reads {FORMAT!r}."
        )

    def array(self, name: str, kind: str, *shape: int, drawn: bool = False) -> Array:
        """Return an array after checking its type and shape (-1: any length).

        Names of arrays of outcomes (`drawn`) begin with "counts"; the seed is derived from all
        others.
        """
        is_there = name in self.arrays and name.startswith("counts") == drawn
        require(is_there, f"The array {name!r} is missing.")
        self.used.add(name)
        array = self.arrays[name]
        self.budget.charge("the arrays of all parts", 1e-5 + 3e-8 * array.size)
        pairs = zip(shape, array.shape, strict=False)
        fits = len(shape) == array.ndim and all(wanted in (-1, size) for wanted, size in pairs)
        require(fits and array.dtype.kind == kind, f"The array {name!r} has a wrong type or shape.")
        return array.astype(np.int64) if kind == "i" else array

    def seed_of_plan(self) -> int:
        """Return the seed that is derived from the plan and its arrays, by SHA-256."""
        text = json.dumps(self.plan, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode())
        for name, array in sorted(self.arrays.items()):
            if not name.startswith("counts"):
                digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
                digest.update(array.tobytes())
        return int.from_bytes(digest.digest()[:16], "big")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of a JSON object; reject a repeated name, which programs read differently."""
    made = dict(pairs)
    require(len(made) == len(pairs), "An object in proof.json repeats a name.")
    return made
