"""Names of states in folders: each list of names once, and which list a variable has.

state_names.json  {"all": names} where all variables have the same, else {"kinds": [names, ...]}
state_kind.npy    int32, n: which of the kinds each variable has, -1 for none; missing where all have the same
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.state_names import Names, StateNames
from dobrushin.errors import FormatError
from dobrushin.io import labels
from dobrushin.io.source import LIMIT, load

NAMES, KINDS = "state_names.json", "state_kind.npy"


class StoredNames(Sequence[Names | None]):
    """Names by position, looked up where they lie; what is read is checked, since files may be damaged."""

    def __init__(self, path: str, kinds: tuple[Names, ...], codes: Any, sizes: Any) -> None:
        self.path, self._kinds, self._codes, self._sizes = path, kinds, codes, sizes

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, i: Any) -> Any:
        code = int(self._codes[i])
        if code == -1:
            return None
        if not 0 <= code < len(self._kinds):
            expected = f"numbers from -1 to {len(self._kinds) - 1}"
            raise FormatError(os.path.join(self.path, KINDS), expected, f"{code} at variable {i}")
        if len(self._kinds[code]) != int(self._sizes[i]):
            expected = f"{int(self._sizes[i])} names of states for variable {i}"
            raise FormatError(os.path.join(self.path, NAMES), expected, f"{len(self._kinds[code])}")
        return self._kinds[code]


def encode(names: StateNames, n: int) -> tuple[bytes, NDArray[np.int32] | None]:
    """What a folder holds of names: the text, and the kinds of all variables."""
    if names.common is not None:
        return labels.encode_states(names), None
    number: dict[Names, int] = {}
    codes = (-1 if known is None else number.setdefault(known, len(number)) for known in names.own)
    kinds = np.fromiter(codes, dtype=np.int32, count=n)
    return labels.encode_kinds(list(number)), kinds


def open_names(folder: str, sizes: Any, kinds: Callable[[str], Any]) -> StateNames:
    """The names in a folder, of variables that have so many states; `kinds` opens the array of kinds."""
    source = load(os.path.join(folder, NAMES), LIMIT, "open_model")
    common, several = labels.decode_kinds(source)
    if common is None:
        return StateNames(own=StoredNames(folder, several, kinds(os.path.join(folder, KINDS)), sizes))
    if sizes.strides != (0,):  # those of each variable are in a file, which is not read here
        codes = np.broadcast_to(np.int32(0), sizes.shape)
        return StateNames(own=StoredNames(folder, (common,), codes, sizes))
    if int(sizes[0]) != len(common):
        raise source.error(f"names of {int(sizes[0])} states", f"{len(common)}")
    return StateNames(common=common)
