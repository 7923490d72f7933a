"""The list of file formats of models: all code that reads, writes, lists or describes formats looks here.

A format is a module with ``read(source)``, which returns a model, and ``write(model)``, which returns bytes; formats
that are only read have no ``write``. Files of energies need a temperature: their ``read`` returns an `Energy`, and
their ``write`` takes the model, beta and the offset. A format's module is imported on first use, so that showing help
is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

# The function that reads a file, and the one that writes a model; None for formats that are only read.
Functions = tuple[Callable[[Any], Any], Callable[..., bytes] | None]


@dataclass(frozen=True)
class Format:
    """A file format: its functions and its description.

    Attributes
    ----------
    extensions : tuple of str
    functions : callable
        Imports the module of the format, and returns its functions `read` and `write`.
    what, becomes, labels : str
        What the files are, the family that a read model has, and what names its variables.
    written_from : str
        Which models can be written; empty if none.
    energies : bool
        Whether the files hold energies, which need a temperature.
    keeps : tuple of str
        Which names a file can hold: "labels" of variables, names of "states".
    """

    extensions: tuple[str, ...]
    functions: Callable[[], Functions]
    what: str
    becomes: str
    labels: str
    written_from: str = ""
    energies: bool = False
    keeps: tuple[str, ...] = ()

    def read(self, source: Any) -> Any:
        """Read a file, and return its model, or its energies if it holds energies."""
        return self.functions()[0](source)

    def write(self, model: Any, *energy: float) -> bytes:
        """Return the bytes of a file of this format with the model; `energy` is beta and the offset."""
        to_bytes = self.functions()[1]
        assert to_bytes is not None  # `written_from` says which formats are written
        return to_bytes(model, *energy)


def _functions(name: str) -> Functions:
    from dobrushin.io import bif, deepdive, energies, networks, npz, uai

    known: dict[str, Functions] = {
        "uai": (uai.read, uai.write),
        "bif": (bif.read, bif.write),
        "xmlbif": (networks.read_xmlbif, None),
        "hugin": (networks.read_hugin, None),
        "bqm": (energies.read_bqm, energies.write_bqm),
        "coo": (energies.read_coo, energies.write_coo),
        "maxcut": (energies.read_maxcut, energies.write_maxcut),
        "npz": (npz.read, npz.write),
        "deepdive": (deepdive.read, None),
    }
    return known[name]


FORMATS = {
    "uai": Format((".uai",), partial(_functions, "uai"), "UAI competitions, MARKOV or BAYES", "`FactorGraph`",
                  "numbers of the file, from 0", "any model"),
    "bif": Format((".bif",), partial(_functions, "bif"), "Bayesian network, interchange format", "`FactorGraph`",
                  "names of the file", "any Bayesian network", keeps=("labels", "states")),
    "xmlbif": Format((".xmlbif", ".bifxml", ".xml"), partial(_functions, "xmlbif"), "Bayesian network, XMLBIF 0.3",
                     "`FactorGraph`", "names of the file"),
    "hugin": Format((".net",), partial(_functions, "hugin"), "Bayesian network of Hugin", "`FactorGraph`",
                    "names of the file"),
    "bqm": Format((".bqm",), partial(_functions, "bqm"), "dimod, binary, versions 1 and 2", "`Ising`",
                  "those of the file", "`Ising`", energies=True, keeps=("labels",)),
    "coo": Format((".coo",), partial(_functions, "coo"), "dimod, coordinate text", "`Ising`",
                  "numbers of the file, in order", "`Ising` with such labels", energies=True, keeps=("labels",)),
    "maxcut": Format((".mc", ".gset", ".rud", ".txt"), partial(_functions, "maxcut"), "max-cut: `n m`, lines `i j w`",
                     "`Ising`", "numbers of the file, from 1", "`Ising` without fields", energies=True),
    "deepdive": Format((".meta",), partial(_functions, "deepdive"), "DeepDive, numbskull: a graph",
                       "`FactorGraph`", "numbers of the files, from 0"),
    "npz": Format((".npz",), partial(_functions, "npz"), "our own", "any model", "any", "any model",
                  keeps=("labels", "states")),
}  # fmt: skip


def extensions(*, written: bool = False, energies: bool = False) -> str:
    """List the extensions of all formats, or only of those that can be written or that hold energies."""
    known = (f for f in FORMATS.values() if (f.written_from or not written) and (f.energies or not energies))
    return ", ".join(extension for known_format in known for extension in known_format.extensions)


def table() -> list[tuple[str, str, str, str, str]]:
    """Return the formats as rows of the documentation's table."""
    return [
        (", ".join(f"`{extension}`" for extension in f.extensions), f.what, f.becomes, f.labels, f.written_from or "–")
        for f in FORMATS.values()
    ]
