"""Other libraries: their models as ours and ours as theirs.

SciPy matrices need no adapter: models are built from them. The functions ``from_...`` and ``to_...`` are names of
`dobrushin` itself, and models are also read where a model is asked for: ``estimate(bqm, ...)``. The rest is here: a
sampler for dimod, inference for pgmpy, and modules for the engines PyMC and thrml. Each library is imported when one of
these names is first used; a missing one is named in a sentence that says what to install.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from dobrushin._shared.environment import READERS

if TYPE_CHECKING:
    from dobrushin.adapters import pymc, thrml
    from dobrushin.adapters.dimod_sampler import DobrushinSampler
    from dobrushin.adapters.networks import CertifiedInference

__all__ = ["CertifiedInference", "DobrushinSampler", "pymc", "thrml"]

_HOME = {"CertifiedInference": "networks", "DobrushinSampler": "dimod_sampler"}
# For objects of these libraries: the module here that has the function from_dimod, from_networkx, ...
_READ_BY = {
    "dimod": "dimod",
    "networkx": "networks",
    "pgmpy": "networks",
    "pyagrum": "networks",
    "pymc": "pymc",
    "thrml": "thrml",
}


def _load(module: str) -> Any:
    return importlib.import_module(f"dobrushin.adapters.{module}")


def _read(library: str, model: Any) -> Any:
    return getattr(_load(_READ_BY[library]), f"from_{library}")(model)


READERS.update({library: partial(_read, library) for library in _READ_BY})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dobrushin.adapters' has no attribute {name!r}")
    value = globals()[name] = getattr(_load(_HOME[name]), name) if name in _HOME else _load(name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
