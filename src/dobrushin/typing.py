"""Types of what public functions take, to annotate code of your own with.

>>> from dobrushin.typing import Evidence, Targets
>>> def sick(targets: Targets, evidence: Evidence) -> None: ...

Words that options take are spelled out, so that type checkers and editors know them. Where a list can be longer at run
time (methods, kernels and formats may be added from outside), a test compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:  # without NumPy, for the command line
    import os
    from collections.abc import Hashable, Iterable, Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from dobrushin._influence import Influence
    from dobrushin._models import Model
    from dobrushin._optimize import ScanResult
    from dobrushin._scan import Scan

__all__ = [
    "Backend",
    "Criterion",
    "DrawMethod",
    "EstimateMethod",
    "Evidence",
    "FitFamily",
    "FitMethod",
    "FitScan",
    "FormatName",
    "Guide",
    "InfluenceLike",
    "InfluenceMethod",
    "Iterations",
    "Keep",
    "KernelName",
    "Label",
    "Learn",
    "LearningRate",
    "MemoryLimit",
    "ModelLike",
    "PartitionMethod",
    "Path",
    "ScanLike",
    "Seed",
    "Targets",
    "Trace",
    "Weights",
]

# The name of a variable, and of one of its states.
Label: TypeAlias = "Hashable"
# Values of variables that were seen: states by name or number; of a field, real numbers.
Evidence: TypeAlias = "Mapping[Hashable, Hashable]"
# "all", a label, or several of labels, `Joint`, `Statistic` and the targets of fields.
Targets: TypeAlias = "Hashable | Iterable[Hashable] | NDArray[np.integer]"
# Weights of variables, by label or in their order.
Weights: TypeAlias = "Mapping[Hashable, float] | ArrayLike"
# A model, a file, or a model of dimod, pgmpy, pyAgrum, networkx, PyMC or thrml.
ModelLike: TypeAlias = "Model | str | os.PathLike[str] | object"
InfluenceLike: TypeAlias = "Model | Influence"
# A scan, the result of choosing one, or variables in the order in which they are updated.
ScanLike: TypeAlias = "Scan | ScanResult | Iterable[Hashable]"
Seed: TypeAlias = "int | np.random.SeedSequence | np.random.Generator | None"
# Bytes, or a text such as "2GiB".
MemoryLimit: TypeAlias = "float | str | None"
Path: TypeAlias = "str | os.PathLike[str]"

Backend = Literal["auto", "cpu", "cuda"]
DrawMethod = Literal["auto", "scan", "clusters"]
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
    "uncertified",
]
PartitionMethod = Literal["auto", "exact", "chain", "weights"]
InfluenceMethod = Literal["best", "paper", "exact"]
# The last is that of fields.
KernelName = Literal["bits", "counts", "table", "dense", "field", "potts", "conditional", "factors", "density"]
FormatName = Literal["uai", "bif", "xmlbif", "hugin", "bqm", "coo", "maxcut", "npz"]
Guide = Literal["auto"]
Criterion = Literal["sum", "max"]
Iterations = Literal["converged"]
Keep = Literal["best", "last"]
FitMethod = Literal["gibbs", "exact"]
FitFamily = Literal["ising", "potts", "pairwise"]
FitScan = Literal["dogs", "systematic", "uniform"]
Learn = Literal["all", "edges", "unaries"]
LearningRate = Literal["auto"]
Trace = Literal["means", "states"]
