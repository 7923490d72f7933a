"""Files: models, evidence and results, one file here per format.

Readers take files from strangers: they execute and unpickle nothing, allocate nothing that a file merely promises, and
answer a broken file with a `FormatError` that names the place, the expected content and the content found.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from dobrushin._shared.environment import PATHS, READERS
from dobrushin.io.formats import FORMATS

if TYPE_CHECKING:
    from dobrushin.io.bif import state_names
    from dobrushin.io.dispatch import lost_names, read, read_offset, write
    from dobrushin.io.folder import build_folder
    from dobrushin.io.stored import open_model
    from dobrushin.io.uai import read_evidence, read_marginals, read_sizes, write_marginals

# Loaded on first use, so that the command line can list the formats before NumPy is there.
_HOME = {
    "build_folder": "folder",
    "lost_names": "dispatch",
    "open_model": "stored",
    "read": "dispatch",
    "read_evidence": "uai",
    "read_marginals": "uai",
    "read_offset": "dispatch",
    "read_sizes": "uai",
    "state_names": "bif",
    "write": "dispatch",
    "write_marginals": "uai",
}

__all__ = [
    "FORMATS",
    "build_folder",
    "lost_names",
    "open_model",
    "read",
    "read_evidence",
    "read_marginals",
    "read_offset",
    "read_sizes",
    "state_names",
    "write",
    "write_marginals",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dobrushin.io' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"dobrushin.io.{_HOME[name]}"), name)
    return value


def _read_path(path: str) -> Any:
    return __getattr__("open_model" if os.path.isdir(path) else "read")(path)


READERS[PATHS] = _read_path


def __dir__() -> list[str]:
    return list(__all__)
