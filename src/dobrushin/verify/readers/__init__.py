"""Read model files to compare proofs with: every format that the library reads, on its own.

A reader is not trusted with a bound: it makes the tables that the user's file stands for. It takes
the content of a file, the positions that matter and the budget, and returns a `ModelFile`.
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
    """Read a file by the ending of its name; `inside` are the positions that matter."""
    if Path(path).is_dir():
        return read_folder(Path(path), inside, budget)
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise NotComparable(f"{path} is neither a file nor a folder.")
    name = path.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        what = f"of another format: the checker reads {known}, packed with gzip or not"
        raise NotComparable(f"{path} is {what}, and folders of models.")
    if ending in ENERGIES:
        return ENERGIES[ending](content(path, budget), inside, budget, beta)
    if beta != 1.0:
        raise NotComparable(f"{path} holds no energies, so it takes no inverse temperature.")
    if ending == GRAPH:
        return read_graph(path, inside, budget)
    return READERS[ending](content(path, budget), inside, budget)
