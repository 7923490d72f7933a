"""Fields: continuous variables in Wasserstein distance, from the model to the estimate.

Importing the room makes its versions of the public functions known.
"""

from dobrushin._fields import certificate, influence, sampler
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import FieldTerms

__all__ = ["FieldTerms", "GaussianField", "certificate", "influence", "sampler"]
