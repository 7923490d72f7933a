"""The formats of model files, one entry for each: all that read, write, list or describe them look here.

A format is a file with ``read(source)``, which returns a model, and ``write(model)``, which returns bytes; formats that
are only read have no ``write``. Files of energies need a temperature: their ``read`` returns an `Energy`, and their
``write`` takes the model, beta and the offset. The file is imported when it is needed, so that help is immediate.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Format:
    """How files of one format are read and written, and what people should know of it.

    Attributes
    ----------
    extensions : tuple of str
    home : str
        Name of the module that has `read` and `write`.
    what, becomes, labels : str
        What the files are, the family they become, and what names the variables.
    written_from : str
        Which models can be written; empty if none.
    energies : bool
        Whether the files hold energies, which need a temperature.
    keeps : tuple of str
        Which names a file keeps: "labels" of variables, names of "states".
    """

    extensions: tuple[str, ...]
    home: str
    what: str
    becomes: str
    labels: str
    written_from: str = ""
    energies: bool = False
    keeps: tuple[str, ...] = ()

    def read(self, source: Any) -> Any:
        """The model of a file, or its energies."""
        return importlib.import_module(self.home).read(source)

    def write(self, model: Any, *energy: float) -> bytes:
        """A model as a file."""
        data: bytes = importlib.import_module(self.home).write(model, *energy)
        return data


FORMATS = {
    "uai": Format((".uai",), "dobrushin.io.uai", "UAI competitions, MARKOV or BAYES", "`FactorGraph`",
                  "numbers of the file, from 0", "any model"),
    "bif": Format((".bif",), "dobrushin.io.bif", "Bayesian network, interchange format", "`FactorGraph`",
                  "names of the file", "any Bayesian network", keeps=("labels", "states")),
    "xmlbif": Format((".xmlbif", ".bifxml", ".xml"), "dobrushin.io.xmlbif", "Bayesian network, XMLBIF 0.3",
                     "`FactorGraph`", "names of the file"),
    "hugin": Format((".net",), "dobrushin.io.hugin", "Bayesian network of Hugin", "`FactorGraph`",
                    "names of the file"),
    "bqm": Format((".bqm",), "dobrushin.io.bqm", "dimod, binary, versions 1 and 2", "`Ising`",
                  "those of the file", "`Ising`", energies=True, keeps=("labels",)),
    "coo": Format((".coo",), "dobrushin.io.coo", "dimod, coordinate text", "`Ising`",
                  "numbers of the file, in order", "`Ising` with such labels", energies=True, keeps=("labels",)),
    "maxcut": Format((".mc", ".gset", ".rud", ".txt"), "dobrushin.io.maxcut", "max-cut: `n m`, lines `i j w`",
                     "`Ising`", "numbers of the file, from 1", "`Ising` without fields", energies=True),
    "npz": Format((".npz",), "dobrushin.io.npz", "our own", "any model", "any", "any model",
                  keeps=("labels", "states")),
}  # fmt: skip


def extensions(*, written: bool = False, energies: bool = False) -> str:
    """Extensions of all formats, of those that are written, or of those that hold energies."""
    known = (f for f in FORMATS.values() if (f.written_from or not written) and (f.energies or not energies))
    return ", ".join(extension for known_format in known for extension in known_format.extensions)


def table() -> list[tuple[str, str, str, str, str]]:
    """The formats as the documentation lists them: extensions, what it is, becomes, labels, written from."""
    return [
        (", ".join(f"`{extension}`" for extension in f.extensions), f.what, f.becomes, f.labels, f.written_from or "–")
        for f in FORMATS.values()
    ]
