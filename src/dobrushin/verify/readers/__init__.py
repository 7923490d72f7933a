"""Read model files, in every format that the library reads, without the library.

A reader makes the tables that a file stands for, and no bound. It takes the content of the file,
the positions of the variables that the proof is about, and the budget; it returns a `ModelFile`.
"""

import stat
from collections.abc import Callable
from pathlib import Path

from dobrushin.verify.document import Array, Budget, NotComparable
from dobrushin.verify.readers.arrays import read_folder, read_npz
from dobrushin.verify.readers.energies import read_bqm, read_coo, read_maxcut
from dobrushin.verify.readers.graphs import read_graph
from dobrushin.verify.readers.networks import read_bif, read_hugin, read_xmlbif
from dobrushin.verify.readers.tables import ModelFile, content, read_uai

READERS: dict[str, Callable[[bytes, Array, Budget], ModelFile]] = {
    ".npz": read_npz,
    ".uai": read_uai,
    ".bif": read_bif,
    ".net": read_hugin,
    **dict.fromkeys((".xmlbif", ".bifxml", ".xml"), read_xmlbif),
}
# Energies are multiplied by an inverse temperature, the last argument of their readers.
ENERGIES: dict[str, Callable[[bytes, Array, Budget, float], ModelFile]] = {
    ".bqm": read_bqm,
    ".coo": read_coo,
    **dict.fromkeys((".mc", ".gset", ".rud", ".txt"), read_maxcut),
}
GRAPH = ".meta"  # with other files beside it
ENDINGS = (*READERS, *ENERGIES, GRAPH)


def read_model_file(path: str, inside: Array, budget: Budget, beta: float) -> ModelFile:
    """Read a model file by its extension; `inside` are the positions that the proof is about."""
    if Path(path).is_dir():
        return read_folder(Path(path), inside, budget)
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise NotComparable(f"{path} is neither a file nor a folder.")
    name = path.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        what = f"{', '.join(ENDINGS)} (also packed with gzip), and folders of models"
        raise NotComparable(f"{path} is in an unknown format. The checker reads {what}.")
    if ending in ENERGIES:
        return ENERGIES[ending](content(path, budget), inside, budget, beta)
    if beta != 1.0:
        raise NotComparable(f"{path} holds no energies, so the argument beta must be left out.")
    if ending == GRAPH:
        return read_graph(path, inside, budget)
    return READERS[ending](content(path, budget), inside, budget)
