"""Gaussian fields: models of continuous variables, whose error bounds are Wasserstein distances.

Importing this package registers its model class, influence bounds, estimation methods and proof writer with the other
packages.
"""

from dobrushin._fields import certificate, influence, proof
from dobrushin._fields.anchor import FIELD_METHODS
from dobrushin._fields.averaged import Average
from dobrushin._fields.averages import average_over
from dobrushin._fields.chains import FieldChains
from dobrushin._fields.entropy import FieldEntropy
from dobrushin._fields.model import GaussianField
from dobrushin._fields.questions import Between, Deviation, Exceeds, Quantile, Summary
from dobrushin._fields.solve import FieldExact, FieldLocal
from dobrushin._fields.terms import FieldTerms

__all__ = [
    "FIELD_METHODS",
    "Average",
    "Between",
    "Deviation",
    "Exceeds",
    "FieldTerms",
    "GaussianField",
    "Quantile",
    "Summary",
    "average_over",
    "certificate",
    "influence",
    "proof",
]

# The methods, in the order in which "auto" asks them.
FIELD_METHODS |= {method.name: method for method in (FieldExact, FieldLocal, FieldChains, FieldEntropy)}
