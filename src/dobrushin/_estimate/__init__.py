"""Estimates of probabilities and means, with intervals that are valid after finitely many steps."""

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.clusters import ClusterDraws
from dobrushin._estimate.coalescence import BoundingSets
from dobrushin._estimate.dobrushin import Dobrushin
from dobrushin._estimate.estimator import estimate, plan
from dobrushin._estimate.exact import Exact
from dobrushin._estimate.local import Local
from dobrushin._estimate.many import Estimates, estimate_many
from dobrushin._estimate.method import Plan, register
from dobrushin._estimate.partition import log_evidence, log_partition
from dobrushin._estimate.parts import ByParts
from dobrushin._estimate.symmetry import Symmetry
from dobrushin._estimate.targets import Joint, Statistic
from dobrushin._estimate.uncertified import Uncertified
from dobrushin._estimate.walks import Walks
from dobrushin._estimate.weights import Weights

__all__ = [
    "Estimate",
    "Estimates",
    "Joint",
    "Plan",
    "Statistic",
    "estimate",
    "estimate_many",
    "log_evidence",
    "log_partition",
    "plan",
]

# The methods, in the order in which "auto" asks them.
for _method in (Symmetry, Dobrushin, Local, Walks, Exact, ByParts, ClusterDraws, BoundingSets, Weights, Uncertified):
    register(_method)
