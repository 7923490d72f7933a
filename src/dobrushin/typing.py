"""Types of the arguments of public functions, for annotations in your own code.

>>> from dobrushin.typing import Evidence, Targets
>>> def sick(targets: Targets, evidence: Evidence) -> None: ...

The texts that an option takes are listed as literals, so that type checkers and editors know them. Methods, kernels and
formats can also be added from outside; a test compares the lists here with the registered ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, Union

if TYPE_CHECKING:  # without NumPy, for the command line
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from dobrushin._influence import Influence
    from dobrushin._models import Model
    from dobrushin._optimize import ScanResult
    from dobrushin._scan import Scan

__all__ = [
    "Backend",
    "Couplings",
    "Criterion",
    "DrawMethod",
    "EstimateMethod",
    "Evidence",
    "FitFamily",
    "FitMethod",
    "FitScan",
    "FormatName",
    "Graph",
    "GridCouplings",
    "GridPotentials",
    "Guide",
    "InfluenceLike",
    "InfluenceMethod",
    "Initial",
    "Iterations",
    "Keep",
    "KernelName",
    "Label",
    "Learn",
    "LearningRate",
    "Matrix",
    "MemoryLimit",
    "ModelLike",
    "NamesOfStates",
    "PartitionMethod",
    "Path",
    "PerVariable",
    "Potentials",
    "ScanLike",
    "Seed",
    "Targets",
    "Trace",
    "Weights",
]


class Graph(Protocol):
    """A graph of networkx, or an object with the same attributes."""

    @property
    def nodes(self) -> Any:
        """The nodes, with their attributes."""

    @property
    def edges(self) -> Any:
        """The edges, with their attributes."""


class SparseMatrix(Protocol):
    """A sparse matrix or array of SciPy."""

    def tocsr(self) -> Any:
        """Return the matrix in compressed sparse row (CSR) format."""


# Forward references in Union: the aliases can be written in annotations that are evaluated (`Evidence | None`), and
# neither NumPy nor models are imported for them.

# The name of a variable, and of one of its states.
Label: TypeAlias = Hashable
# Values of variables that were observed, by label: states by name or number, or likelihoods of states; of a field, real
# numbers. (Keys of a Mapping are invariant, so that Any is needed for a dict[str, int].)
Evidence: TypeAlias = Mapping[Any, Any]
# "all", a label, a target (`Joint`, `Statistic`, ...), or a list of labels and targets.
Targets: TypeAlias = Union[Hashable, Iterable[Hashable], "NDArray[np.integer]"]
# Weights of variables, by label or in their order.
Weights: TypeAlias = Union[Mapping[Any, float], "ArrayLike"]
# A model, a file, or a model of dimod, pgmpy, pyAgrum, networkx, PyMC or thrml.
ModelLike: TypeAlias = Union["Model", str, os.PathLike[str], object]
InfluenceLike: TypeAlias = Union["Model", "Influence"]
# A scan, the result of choosing one, or variables in the order in which they are updated.
ScanLike: TypeAlias = Union["Scan", "ScanResult", Iterable[Hashable]]
# One number for all variables, one for each in their order, or numbers by label.
PerVariable: TypeAlias = Union[Mapping[Any, float], "ArrayLike"]
# A log-potential for each state of each variable, in their order or by label.
Potentials: TypeAlias = Union[Mapping[Any, "ArrayLike"], "ArrayLike"]
Matrix: TypeAlias = Union["ArrayLike", SparseMatrix]
# A symmetric matrix, strengths by pairs of labels, or a graph with weights.
Couplings: TypeAlias = Union["ArrayLike", SparseMatrix, Mapping[Any, float], Graph]
# Couplings of a lattice: numbers; a pair of those to the right and those below; or a function of edge or site numbers.
GridCouplings: TypeAlias = Union[
    "ArrayLike", tuple["ArrayLike", "ArrayLike"], Callable[["NDArray[np.int64]"], "ArrayLike"]
]
GridPotentials: TypeAlias = Union["ArrayLike", Callable[["NDArray[np.int64]"], "ArrayLike"], None]
# Names for the states of all variables, by label, or for each variable in order.
NamesOfStates: TypeAlias = Mapping[Any, Sequence[Hashable]] | Sequence[Hashable | Sequence[Hashable]] | None
# "uniform", "mode", states, or a function that takes numbers of chains and returns their states.
Initial: TypeAlias = Union["ArrayLike", Callable[["NDArray[np.int64]"], "ArrayLike"]]
Seed: TypeAlias = Union[int, "np.random.SeedSequence", "np.random.Generator", None]
# Bytes, or a text such as "2GiB".
MemoryLimit: TypeAlias = float | str | None
Path: TypeAlias = str | os.PathLike[str]

Backend = Literal["auto", "cpu", "cuda"]
DrawMethod = Literal["auto", "scan", "clusters", "weights"]
EstimateMethod = Literal[
    "auto",
    "exact",
    "local",
    "dobrushin",
    "parts",
    "symmetry",
    "walks",
    "clusters",
    "coalescence",
    "weights",
    "entropy",
    "uncertified",
]
PartitionMethod = Literal["auto", "exact", "chain", "weights"]
InfluenceMethod = Literal["best", "paper", "exact"]
# The last kernel, "density", is for fields.
KernelName = Literal["bits", "counts", "table", "dense", "field", "potts", "conditional", "factors", "density"]
FormatName = Literal["uai", "bif", "xmlbif", "hugin", "bqm", "coo", "maxcut", "npz", "deepdive"]
Guide = Literal["auto"]
Criterion = Literal["sum", "max"]
Iterations = Literal["converged"]
Keep = Literal["best", "last"]
FitMethod = Literal["gibbs", "exact", "em"]
FitFamily = Literal["ising", "potts", "pairwise", "bayesian"]
FitScan = Literal["dogs", "systematic", "uniform"]
Learn = Literal["all", "edges", "unaries"]
LearningRate = Literal["auto"]
Trace = Literal["means", "states"]
