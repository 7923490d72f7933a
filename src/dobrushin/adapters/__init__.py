"""Other libraries: their models as ours and ours as theirs, one file here per library.

SciPy matrices need no adapter: models are built from them. What is here is also done where a model is asked for:
``estimate(bqm, ...)`` reads it. Engines that sample by themselves, PyMC and thrml, have modules of their own. Each
library is imported when one of its names here is first used, and missed with one sentence that says what to install.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from dobrushin._shared.environment import READERS

if TYPE_CHECKING:
    from dobrushin.adapters import pymc, thrml
    from dobrushin.adapters.dimod import DobrushinSampler, from_dimod, to_dimod, to_sampleset
    from dobrushin.adapters.networkx import from_networkx
    from dobrushin.adapters.pgmpy import CertifiedInference, from_pgmpy, to_pgmpy
    from dobrushin.adapters.pyagrum import from_pyagrum, to_pyagrum

_HOME = {
    "CertifiedInference": "pgmpy",
    "DobrushinSampler": "dimod",
    "from_dimod": "dimod",
    "from_networkx": "networkx",
    "from_pgmpy": "pgmpy",
    "from_pyagrum": "pyagrum",
    "to_dimod": "dimod",
    "to_pgmpy": "pgmpy",
    "to_pyagrum": "pyagrum",
    "to_sampleset": "dimod",
}

_MODULES = ("pymc", "thrml")

# For objects of these libraries: the module here that reads them, and its function.
_READ_BY = {
    "dimod": ("dimod", "from_dimod"),
    "networkx": ("networkx", "from_networkx"),
    "pgmpy": ("pgmpy", "from_pgmpy"),
    "pyagrum": ("pyagrum", "from_pyagrum"),
    "pymc": ("pymc", "read"),
    "thrml": ("thrml", "read"),
}

__all__ = [
    "CertifiedInference",
    "DobrushinSampler",
    "from_dimod",
    "from_networkx",
    "from_pgmpy",
    "from_pyagrum",
    "pymc",
    "thrml",
    "to_dimod",
    "to_pgmpy",
    "to_pyagrum",
    "to_sampleset",
]


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"dobrushin.adapters.{module}"), name)


def _read(library: str, model: Any) -> Any:
    return _load(*_READ_BY[library])(model)


READERS.update({library: partial(_read, library) for library in _READ_BY})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dobrushin.adapters.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'dobrushin.adapters' has no attribute {name!r}")
    value = globals()[name] = _load(_HOME[name], name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
