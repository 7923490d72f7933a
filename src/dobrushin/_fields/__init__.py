"""Continuous variables, with bounds in Wasserstein distance: the family, its theorems, its kernel and its questions.

Importing the package registers what it has for each stage.
"""

from dobrushin._fields import certificate, influence, proof
from dobrushin._fields.anchor import FIELD_METHODS
from dobrushin._fields.chains import FieldChains
from dobrushin._fields.entropy import FieldEntropy
from dobrushin._fields.model import GaussianField
from dobrushin._fields.questions import Between, Deviation, Exceeds, Quantile, Summary
from dobrushin._fields.solve import FieldExact, FieldLocal
from dobrushin._fields.terms import FieldTerms

__all__ = [
    "FIELD_METHODS",
    "Between",
    "Deviation",
    "Exceeds",
    "FieldTerms",
    "GaussianField",
    "Quantile",
    "Summary",
    "certificate",
    "influence",
    "proof",
]

# The methods, in the order in which "auto" asks them.
FIELD_METHODS |= {method.name: method for method in (FieldExact, FieldLocal, FieldChains, FieldEntropy)}
