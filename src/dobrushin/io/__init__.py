"""Files: models, evidence and results, one file here per format.

Readers take files from strangers: they execute and unpickle nothing, allocate nothing that a file merely promises, and
answer a broken file with a `FormatError` that says where, what was expected and what was found.
"""

from dobrushin.io.bif import state_names
from dobrushin.io.dispatch import FORMATS, read, read_offset, write
from dobrushin.io.evidence import read_evidence
from dobrushin.io.folder import build_folder
from dobrushin.io.marginals import read_marginals, write_marginals
from dobrushin.io.stored import open_model
from dobrushin.io.uai import read_sizes

__all__ = [
    "FORMATS",
    "build_folder",
    "open_model",
    "read",
    "read_evidence",
    "read_marginals",
    "read_offset",
    "read_sizes",
    "state_names",
    "write",
    "write_marginals",
]
