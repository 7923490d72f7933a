"""Conversions from and to other libraries: dimod, networkx, pgmpy, pyAgrum, PyMC, NumPyro, thrml.

SciPy matrices need no adapter: models are built from them. The functions ``from_...`` and ``to_...`` are names of
`dobrushin` itself, and models are also read where a model is asked for: ``estimate(bqm, ...)``. The rest is here: a
sampler for dimod, inference for pgmpy, and modules for the engines PyMC, NumPyro and thrml. Each library is imported
when one of these names is first used; a missing one is named in a sentence that says what to install.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dobrushin._shared.environment import READERS

if TYPE_CHECKING:
    from dobrushin.adapters import numpyro, pymc, thrml
    from dobrushin.adapters.dimod_sampler import DobrushinSampler
    from dobrushin.adapters.networks import CertifiedInference

__all__ = ["CertifiedInference", "DobrushinSampler", "numpyro", "pymc", "thrml"]

# Libraries whose models are read where a model is asked for.
_LIBRARIES = ("dimod", "networkx", "pgmpy", "pyagrum", "pymc", "thrml")


def _read(library: str, model: Any) -> Any:
    import dobrushin.adapters.pymc as of_pymc
    import dobrushin.adapters.thrml as of_thrml
    from dobrushin.adapters.dimod import from_dimod
    from dobrushin.adapters.networks import from_networkx, from_pgmpy, from_pyagrum

    readers: dict[str, Callable[[Any], Any]] = {
        "dimod": from_dimod,
        "networkx": from_networkx,
        "pgmpy": from_pgmpy,
        "pyagrum": from_pyagrum,
        "pymc": of_pymc.from_pymc,
        "thrml": of_thrml.from_thrml,
    }
    return readers[library](model)


READERS.update({library: partial(_read, library) for library in _LIBRARIES})


def __getattr__(name: str) -> Any:
    found: Any
    if name == "CertifiedInference":
        from dobrushin.adapters.networks import CertifiedInference as found
    elif name == "DobrushinSampler":
        from dobrushin.adapters.dimod_sampler import DobrushinSampler as found
    elif name == "numpyro":
        import dobrushin.adapters.numpyro as found
    elif name == "pymc":
        import dobrushin.adapters.pymc as found
    elif name == "thrml":
        import dobrushin.adapters.thrml as found
    else:
        raise AttributeError(f"module 'dobrushin.adapters' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
