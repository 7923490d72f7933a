"""Other libraries: their models as ours and ours as theirs, one file here per library.

networkx graphs and SciPy matrices need no adapter: models are built from them. Each library is imported when one of
its names here is first used, and missed with one sentence that says what to install.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dobrushin.adapters.dimod import DobrushinSampler, from_dimod, to_dimod
    from dobrushin.adapters.pgmpy import CertifiedInference, from_pgmpy

_HOME = {
    "CertifiedInference": "pgmpy",
    "DobrushinSampler": "dimod",
    "from_dimod": "dimod",
    "from_pgmpy": "pgmpy",
    "to_dimod": "dimod",
}

__all__ = ["CertifiedInference", "DobrushinSampler", "from_dimod", "from_pgmpy", "to_dimod"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dobrushin.adapters' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dobrushin.adapters.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
