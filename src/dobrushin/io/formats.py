"""The formats of model files, one entry for each: code that reads, writes, lists or describes files looks here.

A format is a module with ``read(source)``, which returns a model, and ``write(model)``, which returns bytes; formats
that are only read have no ``write``. Files of energies need a temperature: their ``read`` returns an `Energy`, and
their ``write`` takes the model, beta and the offset. The module is imported on first use, so that help is immediate.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Format:
    """A file format: its module and its description.

    Attributes
    ----------
    extensions : tuple of str
    home : str
        Name of the module that has `read` and `write`. Behind a colon, the suffix of their names in a module with
        several formats: "dobrushin.io.energies:coo" has `read_coo` and `write_coo`.
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
        """Return the model of a file, or its energies."""
        return self._function("read")(source)

    def write(self, model: Any, *energy: float) -> bytes:
        """Return a model as a file."""
        data: bytes = self._function("write")(model, *energy)
        return data

    def _function(self, verb: str) -> Any:
        module, _, suffix = self.home.partition(":")
        return getattr(importlib.import_module(module), f"{verb}_{suffix}" if suffix else verb)


FORMATS = {
    "uai": Format((".uai",), "dobrushin.io.uai", "UAI competitions, MARKOV or BAYES", "`FactorGraph`",
                  "numbers of the file, from 0", "any model"),
    "bif": Format((".bif",), "dobrushin.io.bif", "Bayesian network, interchange format", "`FactorGraph`",
                  "names of the file", "any Bayesian network", keeps=("labels", "states")),
    "xmlbif": Format((".xmlbif", ".bifxml", ".xml"), "dobrushin.io.networks:xmlbif",
                     "Bayesian network, XMLBIF 0.3", "`FactorGraph`", "names of the file"),
    "hugin": Format((".net",), "dobrushin.io.networks:hugin", "Bayesian network of Hugin", "`FactorGraph`",
                    "names of the file"),
    "bqm": Format((".bqm",), "dobrushin.io.energies:bqm", "dimod, binary, versions 1 and 2", "`Ising`",
                  "those of the file", "`Ising`", energies=True, keeps=("labels",)),
    "coo": Format((".coo",), "dobrushin.io.energies:coo", "dimod, coordinate text", "`Ising`",
                  "numbers of the file, in order", "`Ising` with such labels", energies=True, keeps=("labels",)),
    "maxcut": Format((".mc", ".gset", ".rud", ".txt"), "dobrushin.io.energies:maxcut", "max-cut: `n m`, lines `i j w`",
                     "`Ising`", "numbers of the file, from 1", "`Ising` without fields", energies=True),
    "npz": Format((".npz",), "dobrushin.io.npz", "our own", "any model", "any", "any model",
                  keeps=("labels", "states")),
}  # fmt: skip


def extensions(*, written: bool = False, energies: bool = False) -> str:
    """List the extensions of all formats, of written ones only, or of files of energies only."""
    known = (f for f in FORMATS.values() if (f.written_from or not written) and (f.energies or not energies))
    return ", ".join(extension for known_format in known for extension in known_format.extensions)


def table() -> list[tuple[str, str, str, str, str]]:
    """Return the formats as the documentation lists them: extensions, what it is, becomes, labels, written from."""
    return [
        (", ".join(f"`{extension}`" for extension in f.extensions), f.what, f.becomes, f.labels, f.written_from or "–")
        for f in FORMATS.values()
    ]
