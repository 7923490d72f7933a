"""Read and write files of models, evidence and results: one module for each format.

Files may come from strangers. Readers execute and unpickle nothing, allocate no memory just because a file's header
says so, and answer a broken file with a `FormatError` that names the place, what was expected and what was found.
"""

from __future__ import annotations

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
    """Import public functions on first use, so that the command line can list the formats without NumPy."""
    if name not in __all__:
        raise AttributeError(f"module 'dobrushin.io' has no attribute {name!r}")
    import dobrushin.io.bif as bif
    import dobrushin.io.dispatch as dispatch
    import dobrushin.io.folder as folder
    import dobrushin.io.stored as stored
    import dobrushin.io.uai as uai

    # Formats have functions `read` and `write` too: those of `dispatch` come first.
    homes = map(vars, (dispatch, bif, folder, stored, uai))
    value = globals()[name] = next(home[name] for home in homes if name in home)
    return value


def _read_path(path: str) -> Any:
    return __getattr__("open_model" if os.path.isdir(path) else "read")(path)


READERS[PATHS] = _read_path


def __dir__() -> list[str]:
    return list(__all__)
