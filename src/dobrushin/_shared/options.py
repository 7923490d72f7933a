"""Words that options take, for type checkers and for those who complete names.

Where a list can be longer at run time (methods, kernels and formats may be added from outside), a test compares.
"""

from __future__ import annotations

from typing import Literal

Backend = Literal["auto", "cpu", "cuda"]
EstimateMethod = Literal["auto", "exact", "local", "dobrushin", "parts", "coalescence", "uncertified"]
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
FitScan = Literal["certified", "systematic", "uniform"]
Learn = Literal["all", "edges", "unaries"]
Step = Literal["auto"]
Trace = Literal["means", "states"]
