"""The formats of model files, one entry for each: code that reads, writes, lists or describes files looks here.

A format is a module with ``read(source)``, which returns a model, and ``write(model)``, which returns bytes; formats
that are only read have no ``write``. Files of energies need a temperature: their ``read`` returns an `Energy`, and
their ``write`` takes the model, beta and the offset. The module is imported on first use, so that help is immediate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# What reads a file, and what makes one of a model; None for formats that are only read.
Functions = tuple[Callable[[Any], Any], Callable[..., bytes] | None]


@dataclass(frozen=True)
class Format:
    """A file format: its functions and its description.

    Attributes
    ----------
    extensions : tuple of str
    functions : callable
        Imports the module of the format, and returns what reads and what writes files.
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
    functions: Callable[[], Functions]
    what: str
    becomes: str
    labels: str
    written_from: str = ""
    energies: bool = False
    keeps: tuple[str, ...] = ()


def _uai() -> Functions:
    from dobrushin.io.uai import read, write

    return read, write


def _bif() -> Functions:
    from dobrushin.io.bif import read, write

    return read, write


def _xmlbif() -> Functions:
    from dobrushin.io.networks import read_xmlbif

    return read_xmlbif, None


def _hugin() -> Functions:
    from dobrushin.io.networks import read_hugin

    return read_hugin, None


def _bqm() -> Functions:
    from dobrushin.io.energies import read_bqm, write_bqm

    return read_bqm, write_bqm


def _coo() -> Functions:
    from dobrushin.io.energies import read_coo, write_coo

    return read_coo, write_coo


def _maxcut() -> Functions:
    from dobrushin.io.energies import read_maxcut, write_maxcut

    return read_maxcut, write_maxcut


def _npz() -> Functions:
    from dobrushin.io.npz import read, write

    return read, write


FORMATS = {
    "uai": Format((".uai",), _uai, "UAI competitions, MARKOV or BAYES", "`FactorGraph`",
                  "numbers of the file, from 0", "any model"),
    "bif": Format((".bif",), _bif, "Bayesian network, interchange format", "`FactorGraph`",
                  "names of the file", "any Bayesian network", keeps=("labels", "states")),
    "xmlbif": Format((".xmlbif", ".bifxml", ".xml"), _xmlbif, "Bayesian network, XMLBIF 0.3", "`FactorGraph`",
                     "names of the file"),
    "hugin": Format((".net",), _hugin, "Bayesian network of Hugin", "`FactorGraph`", "names of the file"),
    "bqm": Format((".bqm",), _bqm, "dimod, binary, versions 1 and 2", "`Ising`",
                  "those of the file", "`Ising`", energies=True, keeps=("labels",)),
    "coo": Format((".coo",), _coo, "dimod, coordinate text", "`Ising`",
                  "numbers of the file, in order", "`Ising` with such labels", energies=True, keeps=("labels",)),
    "maxcut": Format((".mc", ".gset", ".rud", ".txt"), _maxcut, "max-cut: `n m`, lines `i j w`",
                     "`Ising`", "numbers of the file, from 1", "`Ising` without fields", energies=True),
    "npz": Format((".npz",), _npz, "our own", "any model", "any", "any model", keeps=("labels", "states")),
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
