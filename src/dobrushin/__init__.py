"""Gibbs sampling with error bars that can be trusted.

Bound how much each variable of a discrete graphical model influences each other one, turn that into a
certified bound on the bias of any Gibbs scan before sampling, and choose scans for the variables you care about.

>>> import dobrushin as db
>>> model = db.Ising.grid(10, 10, couplings=0.2)
>>> result = db.shortest_scan(model, targets=[0], tolerance=0.01)
>>> len(result.scan), result.variation.value <= 0.01
(68, True)
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from dobrushin import adapters, io  # packages that say what they can read, and load nothing yet
from dobrushin._shared import call as _call
from dobrushin._shared.environment import VERSION

if TYPE_CHECKING:
    from dobrushin import exact, plots, report, typing, verify, vision
    from dobrushin._coalescence import Coalescence, ExactSamples, coalescence, exact_sample
    from dobrushin._diagnose import Diagnosis, diagnose, suggest_groups
    from dobrushin._estimate import (
        Estimate,
        Estimates,
        Joint,
        Plan,
        Statistic,
        estimate,
        estimate_many,
        log_evidence,
        log_partition,
        plan,
    )
    from dobrushin._fields import (
        Average,
        Between,
        Deviation,
        Exceeds,
        GaussianField,
        Quantile,
        Summary,
        average_over,
    )
    from dobrushin._influence import Influence, influence
    from dobrushin._learning import EM, Fit, GibbsGradient, MarginalGradient, fit
    from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
    from dobrushin._models.local import LocalModel
    from dobrushin._optimize import ScanResult, greedy_scan, optimize_scan, shortest_scan
    from dobrushin._sampling import Record, Samples, sample
    from dobrushin._scan import Scan
    from dobrushin._self_check import self_check
    from dobrushin._shared.running import RunOptions
    from dobrushin._variation import Variation, variation
    from dobrushin.adapters.dimod import from_dimod, to_dimod, to_sampleset
    from dobrushin.adapters.networks import from_networkx, from_pgmpy, from_pyagrum, to_pgmpy, to_pyagrum
    from dobrushin.adapters.pymc import from_pymc
    from dobrushin.adapters.thrml import from_thrml
    from dobrushin.errors import (
        ArgumentError,
        BudgetError,
        CacheWarning,
        CertificateError,
        CheckpointWarning,
        CoalescenceError,
        FormatError,
        Interrupted,
        ToleranceError,
        UncertifiedStep,
        VacuousBoundWarning,
        WorkerError,
    )
    from dobrushin.io import open_model, read, read_evidence, write
    from dobrushin.verify import verify_proof

__version__ = VERSION

# Names are loaded on first use, so that `dobrushin --help` waits for neither Numba nor SciPy.
_NAMES = {  # by the module that has them
    "adapters.dimod": "from_dimod to_dimod to_sampleset",
    "adapters.networks": "from_networkx from_pgmpy from_pyagrum to_pgmpy to_pyagrum",
    "adapters.pymc": "from_pymc",
    "adapters.thrml": "from_thrml",
    "_coalescence": "Coalescence ExactSamples coalescence exact_sample",
    "_diagnose": "Diagnosis diagnose suggest_groups",
    "errors": (
        "ArgumentError BudgetError CacheWarning CertificateError CheckpointWarning CoalescenceError "
        "FormatError Interrupted ToleranceError UncertifiedStep VacuousBoundWarning WorkerError"
    ),
    "_estimate": "Estimate Estimates Joint Plan Statistic estimate estimate_many log_evidence log_partition plan",
    "_fields": "Average Between Deviation Exceeds GaussianField Quantile Summary average_over",
    "_influence": "Influence influence",
    "io": "open_model read read_evidence write",
    "_learning": "EM Fit GibbsGradient MarginalGradient fit",
    "_models": "FactorGraph Ising Model PairwiseMRF Potts SpinMRF",
    "_models.local": "LocalModel",
    "_optimize": "ScanResult greedy_scan optimize_scan shortest_scan",
    "_sampling": "Record Samples sample",
    "_scan": "Scan",
    "_self_check": "self_check",
    "_shared.running": "RunOptions",
    "_variation": "Variation variation",
    "verify": "verify_proof",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ("adapters", "exact", "io", "plots", "report", "typing", "verify", "vision")

__all__ = [
    "EM",
    "ArgumentError",
    "Average",
    "Between",
    "BudgetError",
    "CacheWarning",
    "CertificateError",
    "CheckpointWarning",
    "Coalescence",
    "CoalescenceError",
    "Deviation",
    "Diagnosis",
    "Estimate",
    "Estimates",
    "ExactSamples",
    "Exceeds",
    "FactorGraph",
    "Fit",
    "FormatError",
    "GaussianField",
    "GibbsGradient",
    "Influence",
    "Interrupted",
    "Ising",
    "Joint",
    "LocalModel",
    "MarginalGradient",
    "Model",
    "PairwiseMRF",
    "Plan",
    "Potts",
    "Quantile",
    "Record",
    "RunOptions",
    "Samples",
    "Scan",
    "ScanResult",
    "SpinMRF",
    "Statistic",
    "Summary",
    "ToleranceError",
    "UncertifiedStep",
    "VacuousBoundWarning",
    "Variation",
    "WorkerError",
    "adapters",
    "average_over",
    "coalescence",
    "diagnose",
    "estimate",
    "estimate_many",
    "exact",
    "exact_sample",
    "fit",
    "from_dimod",
    "from_networkx",
    "from_pgmpy",
    "from_pyagrum",
    "from_pymc",
    "from_thrml",
    "greedy_scan",
    "influence",
    "io",
    "log_evidence",
    "log_partition",
    "open_model",
    "optimize_scan",
    "plan",
    "plots",
    "read",
    "read_evidence",
    "report",
    "sample",
    "self_check",
    "shortest_scan",
    "suggest_groups",
    "to_dimod",
    "to_pgmpy",
    "to_pyagrum",
    "to_sampleset",
    "typing",
    "variation",
    "verify",
    "verify_proof",
    "vision",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        with _call.loading():
            value = getattr(importlib.import_module(f"dobrushin.{_HOME[name]}"), name)
    elif name in _MODULES:
        with _call.loading():
            value = importlib.import_module(f"dobrushin.{name}")
    else:
        # With these, Python's own message names what may have been meant.
        message = f"module 'dobrushin' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
