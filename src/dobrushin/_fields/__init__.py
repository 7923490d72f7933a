"""Fields: continuous variables in Wasserstein distance, from the model to the estimate.

Importing the room makes its versions of the public functions known.
"""

from dobrushin._fields import certificate, diagnosis, estimator, influence, lazy, proof, sampler, scans
from dobrushin._fields.model import GaussianField
from dobrushin._fields.targets import Between, Exceeds, Quantile
from dobrushin._fields.terms import FieldTerms

__all__ = [
    "Between",
    "Exceeds",
    "FieldTerms",
    "GaussianField",
    "Quantile",
    "certificate",
    "diagnosis",
    "estimator",
    "influence",
    "lazy",
    "proof",
    "sampler",
    "scans",
]
